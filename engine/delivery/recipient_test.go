package delivery

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// failing is a failure that passes, with how far the attempt came.
func failing(reach exchange.Reach) error {
	return fault.RetryIn(0, "later", exchange.WithReach(errors.New("later"), reach))
}

// bring makes an attempt for a recipient of the host, and reports whether it was made.
func bring(t *testing.T, s *Service, recipient string, result error) (made bool) {
	t.Helper()
	to := exchange.Destination{Key: host, Address: recipient}
	err := s.Guard(t.Context(), queue.Job{Attempt: 1}, fediverse, to, func(context.Context) error { made = true; return result })
	if err == nil && result != nil {
		t.Error("a failure was no failure")
	}
	return made
}

// TestRecipientsPayForThemselves: what a destination answers for recipients, however many, and an attempt that broke off for a few of them,
// stops no one else there, on no node.
func TestRecipientsPayForThemselves(t *testing.T) {
	for name, test := range map[string]struct {
		recipients, each int
		result           error
	}{
		"five full mailboxes":                {5, 4, failing(exchange.ReachRecipient)},
		"fifty full mailboxes":               {50, 2, failing(exchange.ReachRecipient)},
		"an inbox that is gone":              {1, 30, fault.GiveUp("410", exchange.WithReach(errors.New("410"), exchange.ReachRecipient))},
		"an inbox that fails or hangs":       {1, 30, failing(exchange.ReachSession)},
		"some inboxes that fail or hang":     {recipientLimit - 1, 10, failing(exchange.ReachSession)},
		"an inbox that asks for a day":       {1, 3, fault.RetryIn(24*time.Hour, "429", exchange.WithReach(errors.New("429"), exchange.ReachSession))},
		"our own store":                      {5, 4, failing(exchange.ReachOurs)},
		"a mailbox for which a day is asked": {40, 1, fault.RetryIn(24*time.Hour, "451", exchange.WithReach(errors.New("451"), exchange.ReachRecipient))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newShared()
				limits := exchange.DeliveryLimits{WaitsTogether: true}
				s, other := limited(store, limits), limited(store, limits)
				for range test.each {
					for i := range test.recipients {
						bring(t, s, fmt.Sprint("full", i), test.result)
					}
				}
				for _, node := range []*Service{s, other} {
					if !bring(t, node, "bob", nil) {
						t.Error("another recipient waits")
					}
				}
			})
		})
	}
}

// TestRecipientWaits: one who fails again and again is paused, and one for whom a pause was asked; a success ends it.
func TestRecipientWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(newShared(), exchange.DeliveryLimits{WaitsTogether: true})
		for range failureLimit {
			bring(t, s, "full", failing(exchange.ReachRecipient))
		}
		if bring(t, s, "full", nil) {
			t.Error("one who failed five times is tried again at once")
		}
		<-time.After(pauses[0] + time.Second)
		for range 2 {
			if !bring(t, s, "full", nil) {
				t.Error("after the pause it is not tried")
			}
		}
		bring(t, s, "busy", fault.RetryIn(10*time.Minute, "429", exchange.WithReach(errors.New("429"), exchange.ReachSession)))
		<-time.After(9 * time.Minute)
		if bring(t, s, "busy", nil) {
			t.Error("the pause that was asked for is over too early")
		}
		<-time.After(time.Minute)
		if !bring(t, s, "busy", nil) {
			t.Error("the pause that was asked for does not end")
		}
	})
}

// TestHostThatIsDownPauses: no session, many recipients for whom it broke off, and several who are asked to wait.
func TestHostThatIsDownPauses(t *testing.T) {
	for name, test := range map[string]struct {
		recipients, each int
		result           error
	}{
		"no session":           {1, failureLimit, failing(exchange.ReachNone)},
		"it fails for many":    {recipientLimit, 1, failing(exchange.ReachSession)},
		"it asks many to wait": {askingLimit, 1, fault.RetryIn(time.Minute, "429", exchange.WithReach(errors.New("429"), exchange.ReachSession))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newShared()
				limits := exchange.DeliveryLimits{WaitsTogether: true}
				s, other := limited(store, limits), limited(store, limits)
				for range test.each {
					for i := range test.recipients {
						bring(t, s, fmt.Sprint("person", i), test.result)
					}
				}
				if bring(t, s, "bob", nil) || bring(t, other, "bob", nil) {
					t.Error("a host that is down is tried")
				}
				<-time.After(pauses[0] + time.Second)
				if !bring(t, s, "bob", nil) || !bring(t, s, "ann", nil) {
					t.Error("after the pause it is not tried")
				}
			})
		})
	}
}

// TestProbeGoesToAnotherRecipient: those who may have caused the pause come later than others, and are tried if no one else comes.
func TestProbeGoesToAnotherRecipient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := node(newShared())
		pause := func() {
			for i := range recipientLimit {
				bring(t, s, fmt.Sprint("person", i), failing(exchange.ReachSession))
			}
			<-time.After(pauses[0])
		}
		pause()
		if bring(t, s, "person1", failing(exchange.ReachSession)) {
			t.Error("one who may have caused the pause is the probe")
		}
		if !bring(t, s, "bob", nil) || !bring(t, s, "ann", nil) {
			t.Error("others are not tried")
		}
		pause()
		<-time.After(yieldTime)
		if !bring(t, s, "person1", nil) || !bring(t, s, "bob", nil) {
			t.Error("where no one else came, one of them is not tried")
		}
	})
}

// TestAnswerAboutARecipientIsAProbe: a host that was down and says that a mailbox is full, or gone, is up.
func TestAnswerAboutARecipientIsAProbe(t *testing.T) {
	for _, result := range []error{
		failing(exchange.ReachRecipient), fault.GiveUp("410", exchange.WithReach(errors.New("410"), exchange.ReachRecipient)),
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newShared()
			s := node(store)
			for range failureLimit {
				bring(t, s, "ann", failing(exchange.ReachNone))
			}
			<-time.After(pauses[0])
			if !bring(t, s, "full", result) || !bring(t, s, "bob", nil) || store.count() != 0 {
				t.Error("the host is paused although it answered")
			}
		})
	}
}

// TestDeadInboxDoesNotKillItsHost: an inbox that hangs on each of seven days is no reason to give the whole host up.
func TestDeadInboxDoesNotKillItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := node(newShared())
		for range 2 * deadAfter {
			bring(t, s, "dead", failing(exchange.ReachSession))
			<-time.After(24 * time.Hour)
		}
		if s.Dead(t.Context(), fediverse, host) || !bring(t, s, "bob", nil) {
			t.Error("the host was given up")
		}
	})
}

// TestSlowRecipientLeavesPlaces: attempts that hang for one recipient leave a place of the host to others, and more once they failed.
func TestSlowRecipientLeavesPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(newShared(), exchange.DeliveryLimits{Concurrency: 4})
		hang := func(recipient string) {
			to := exchange.Destination{Key: host, Address: recipient}
			_ = s.Guard(t.Context(), queue.Job{Attempt: 1}, fediverse, to, func(context.Context) error { pause(15 * time.Second); return failing(exchange.ReachSession) })
		}
		for range 8 {
			go hang("dead")
		}
		pause(time.Second)
		if begun := time.Now(); !bring(t, s, "bob", nil) || time.Since(begun) > 0 {
			t.Error("another recipient waits for a place")
		}
		pause(time.Minute)
		for i := range 3 {
			hang(fmt.Sprint("dead", i))
		}
		for i := range 3 {
			go hang(fmt.Sprint("dead", i))
		}
		pause(time.Second)
		entered := make(chan bool, 1)
		to := exchange.Destination{Key: host, Address: "ann"}
		go func() {
			_ = s.Guard(t.Context(), queue.Job{Attempt: 1}, fediverse, to, func(context.Context) error { entered <- true; pause(time.Second); return nil })
		}()
		<-entered
		if !bring(t, s, "bob", nil) {
			t.Error("recipients who failed hold more than half of the places")
		}
		pause(time.Minute)
		if s.perKey.InUse() != 0 {
			t.Error("places are left over")
		}
	})
}

func pause(d time.Duration) { <-time.After(d) }

// TestManyRecipientsPushOutNoHost: a stranger with 20,000 recipients takes bounded memory, and the open breaker of a host stays.
func TestManyRecipientsPushOutNoHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := node(newShared())
		for range failureLimit {
			tries(t, s, 1, errDown)
		}
		for i := range 20_000 {
			to := exchange.Destination{Key: "stranger.example", Address: fmt.Sprint("recipient", i)}
			_ = s.Guard(t.Context(), queue.Job{Attempt: 1}, fediverse, to, func(context.Context) error { return failing(exchange.ReachRecipient) })
		}
		if s.recipients.keys.Len() > maxKeys || s.breakers.keys.Len() > maxKeys {
			t.Errorf("%d recipients and %d hosts are remembered", s.recipients.keys.Len(), s.breakers.keys.Len())
		}
		if reached := tries(t, s, 1, nil); reached != 0 {
			t.Error("the host that is down is tried")
		}
	})
}
