package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

// clockStore notes when an acknowledgement would be stored.
type clockStore struct {
	Store
	at []time.Time
}

func (s *clockStore) InTx(context.Context, func(Tx) error) error {
	s.at = append(s.at, time.Now())
	return nil
}

// oneWay is a channel that is told after a minute at the earliest.
type oneWay struct{ exchange.Channel }

func (oneWay) Plan(context.Context, exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{Destinations: []exchange.Destination{{Key: "peer.test"}}}, nil
}

func (oneWay) AckAfter(wanted time.Duration) time.Duration { return max(wanted, time.Minute) }

// TestSignOfLifeCountsFromTheAcceptance: a run that begins late is due at once, but for a moment in which it may end.
func TestSignOfLifeCountsFromTheAcceptance(t *testing.T) {
	cases := map[string]struct {
		after, age time.Duration // of the turn when the run begins
		takes      time.Duration
		want       time.Duration // after the start of the run; 0 = none
	}{
		"first run":                    {5 * time.Minute, 0, time.Hour, 5 * time.Minute},
		"the channel's minimum":        {time.Second, 0, time.Hour, time.Minute},
		"ends before":                  {5 * time.Minute, 0, 299 * time.Second, 0},
		"ends before the minimum":      {time.Second, 0, 59 * time.Second, 0},
		"after a restart":              {5 * time.Minute, 3 * time.Minute, time.Hour, 2 * time.Minute},
		"after a long outage":          {5 * time.Minute, 24 * time.Hour, time.Hour, ackSettle},
		"a moment after a long outage": {5 * time.Minute, 24 * time.Hour, time.Second, 0},
		"switched off":                 {0, 24 * time.Hour, time.Hour, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kept := &clockStore{}
				s := New(Options{Store: kept, Channels: exchange.NewChannels(exchange.Module{Name: normalized.ViaEmail, Channel: oneWay{}})})
				agent := agents.Entry{Settings: agents.Settings{AckAfter: c.after}.WithDefaults()}
				turn := exchange.TurnRecord{ID: "t", AcceptedAt: time.Now().Add(-c.age)}
				turn.Channel = normalized.ViaEmail
				begun := time.Now()
				quiet := s.signOfLife(t.Context(), agent, turn)
				<-time.After(c.takes)
				quiet()
				<-time.After(time.Hour)
				switch {
				case c.want == 0 && len(kept.at) != 0:
					t.Errorf("acknowledged after %v", kept.at[0].Sub(begun))
				case c.want != 0 && (len(kept.at) != 1 || kept.at[0].Sub(begun) != c.want):
					t.Errorf("acknowledged at %v after %v; want after %v", kept.at, begun, c.want)
				}
			})
		})
	}
}
