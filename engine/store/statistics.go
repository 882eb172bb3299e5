package store

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/normalized"
)

// statisticsStore counts what came in by hour, from the ledger.
type statisticsStore struct{ *shared }

// Traffic is what came in by a channel within a step of time, and what became of it until it was counted last.
type Traffic struct {
	At      time.Time `json:"at,omitzero"` // beginning of the step, UTC
	Channel string    `json:"channel"`

	Received  int64 `json:"received"`
	Answered  int64 `json:"answered"`
	Silent    int64 `json:"silent"`
	Failed    int64 `json:"failed"`
	Refused   int64 `json:"refused"`
	Cancelled int64 `json:"cancelled"`
	Held      int64 `json:"held"`
	Waiting   int64 `json:"waiting"` // accepted, running, or waiting for something

	// Spend is in millionths of what agents state as the cost of their answers; all agents of a server state it in one unit.
	Spend int64     `json:"spend_micros"`
	Took  Latencies `json:"took"`
}

// latencyBounds are the upper bounds of Latencies; the last one has none. The columns took_N of channel_hours follow them: a change needs
// a migration.
var latencyBounds = [...]time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
	15 * time.Minute, time.Hour, 24 * time.Hour,
}

// Latencies are numbers of answers by how long they took: up to 1, 2, 5, 10 and 30 seconds, 1, 2, 5 and 15 minutes, an hour, a day, and more.
type Latencies [len(latencyBounds) + 1]int64

// count adds an answer that took so long.
func (l *Latencies) count(took time.Duration) {
	for i, bound := range latencyBounds {
		if took <= bound {
			l[i]++
			return
		}
	}
	l[len(latencyBounds)]++
}

// Quantile returns how long the share of the answers (0…1) took at most: within its bucket by a straight line. Without answers it is 0,
// and where it is beyond a day, a day.
func (l Latencies) Quantile(share float64) time.Duration {
	total := int64(0)
	for _, n := range l {
		total += n
	}
	if total == 0 {
		return 0
	}

	rank, below, from := share*float64(total), int64(0), time.Duration(0)
	for i, bound := range latencyBounds {
		if within := rank - float64(below); l[i] > 0 && within <= float64(l[i]) {
			return from + time.Duration(float64(bound-from)*within/float64(l[i]))
		}
		below, from = below+l[i], bound
	}
	return from
}

// Add adds what another one counted.
func (t *Traffic) Add(other Traffic) {
	for i, into := range t.counts() {
		*into += *other.counts()[i]
	}
}

// counts are the numbers in the order of the columns.
func (t *Traffic) counts() []*int64 {
	all := []*int64{&t.Received, &t.Answered, &t.Silent, &t.Failed, &t.Refused, &t.Cancelled, &t.Held, &t.Waiting, &t.Spend}
	for i := range t.Took {
		all = append(all, &t.Took[i])
	}
	return all
}

var trafficColumns = func() string {
	columns := []string{"received", "answered", "silent", "failed", "refused", "cancelled", "held", "waiting", "spend"}
	for i := range (Latencies{}) {
		columns = append(columns, "took_"+strconv.Itoa(i))
	}
	return strings.Join(columns, ", ")
}()

const (
	// countedBack is how far back hours are counted when no one counted them before: a server of an older version, or one that stood still.
	countedBack = 31 * 24 * time.Hour
	// settleAfter is how long after its end an hour is counted at least: a message may be stored a while after its id was made.
	settleAfter = time.Hour
	// settleAtLast is when an hour is settled in which a message still waits or could be tried again.
	settleAtLast = 30 * 24 * time.Hour
	// keepHours is how long the numbers are kept.
	keepHours = 400 * 24 * time.Hour

	// Bounds of one round.
	hoursOfRound = 100
	timeOfRound  = 10 * time.Second
)

const (
	selectDueHours = `SELECT hour FROM counted_hours WHERE due_at > 0 AND due_at <= $1 ORDER BY hour + 0 DESC LIMIT $2 + 0`
	selectHour     = `SELECT t.agent, t.channel, t.state, t.accepted_at,
		COALESCE((SELECT r.created_at FROM replies r WHERE r.turn_id = t.id), 0),
		COALESCE((SELECT r.response FROM replies r WHERE r.turn_id = t.id AND r.response LIKE '%"cost"%'), '')
		FROM turns t WHERE t.id >= $1 AND t.id < $2`
	selectCounted = `SELECT CAST(COALESCE(SUM(received), 0) AS BIGINT), CAST(COALESCE(SUM(spend), 0) AS BIGINT) FROM channel_hours WHERE hour = $1`
)

// CountHours counts the hours that are due: the current one, and those before in which something may have changed. The work of a call is
// bounded; what is left is done by the next one. Two nodes that count the same hour write the same.
func (s statisticsStore) CountHours(ctx context.Context, now time.Time) error {
	if err := s.beginHours(ctx, now); err != nil {
		return err
	}

	var due []time.Time
	err := s.engine.Reader().Each(ctx, selectDueHours, []any{micros(now), int64(hoursOfRound)}, func(r row) error {
		var hour int64
		err := r.Scan(&hour)
		due = append(due, instant(hour))
		return err
	})
	end := time.Now().Add(timeOfRound)
	for _, hour := range due {
		if err != nil || !time.Now().Before(end) {
			break
		}
		err = s.background.do(ctx, func() error { return s.countHour(ctx, hour, now) })
	}
	return err
}

// beginHours makes the rows of hours that began since the last call, and removes those that are too old.
func (s statisticsStore) beginHours(ctx context.Context, now time.Time) error {
	current := now.UTC().Truncate(time.Hour)
	var last int64
	known, err := first(ctx, s.engine.Reader(), `SELECT hour FROM counted_hours ORDER BY hour DESC LIMIT 1`, nil, &last)
	if err != nil || known && !instant(last).Before(current) {
		return err
	}

	from := current.Add(-countedBack)
	if next := instant(last).Add(time.Hour); known && next.After(from) {
		from = next
	}
	if !known { // nothing is counted of the time before the first message
		begun := micros(now)
		if _, err := first(ctx, s.engine.Reader(), `SELECT accepted_at FROM turns ORDER BY id LIMIT 1`, nil, &begun); err != nil {
			return err
		}
		if earliest := instant(begun).UTC().Truncate(time.Hour).Add(-time.Hour); earliest.After(from) {
			from = earliest
		}
	}
	return s.InTx(ctx, func(tx *Tx) error {
		for hour := from; !hour.After(current); hour = hour.Add(time.Hour) {
			if err := tx.sql.Do(ctx, `INSERT INTO counted_hours (hour, due_at) VALUES ($1, $2) ON CONFLICT (hour) DO NOTHING`, micros(hour), micros(hour)); err != nil {
				return err
			}
		}
		if err := tx.sql.Do(ctx, `DELETE FROM channel_hours WHERE hour < $1`, micros(now.Add(-keepHours))); err != nil {
			return err
		}
		return tx.sql.Do(ctx, `DELETE FROM counted_hours WHERE hour < $1`, micros(now.Add(-keepHours)))
	})
}

// countedAt is where messages are counted.
type countedAt struct{ agent, channel string }

func (s statisticsStore) countHour(ctx context.Context, hour, now time.Time) error {
	counted, open, err := s.readHour(ctx, hour)
	if err != nil {
		return err
	}
	due := dueAgain(hour, now, open)

	return s.InTx(ctx, func(tx *Tx) error {
		var received, spend int64
		if _, err := first(ctx, tx.sql, selectCounted, []any{micros(hour)}, &received, &spend); err != nil {
			return err
		}
		for _, one := range counted {
			received, spend = received-one.Received, spend-one.Spend
		}

		// Messages, or words with a cost, were removed since: what was counted before is the truth, and stays.
		if received > 0 || spend > 0 {
			return tx.sql.Do(ctx, `UPDATE counted_hours SET due_at = 0 WHERE hour = $1`, micros(hour))
		}
		if err := tx.sql.Do(ctx, `DELETE FROM channel_hours WHERE hour = $1`, micros(hour)); err != nil {
			return err
		}
		for at, one := range counted {
			values := []any{micros(hour), at.agent, at.channel}
			for _, n := range one.counts() {
				values = append(values, *n)
			}
			query := `INSERT INTO channel_hours (hour, agent, channel, ` + trafficColumns + `) VALUES (` + placeholders(1, len(values)) + `)`
			if err := tx.sql.Do(ctx, query, values...); err != nil {
				return err
			}
		}
		return tx.sql.Do(ctx, `UPDATE counted_hours SET due_at = $1 WHERE hour = $2`, due, micros(hour))
	})
}

// dueAgain is when an hour is counted again: ever more rarely, the longer something in it stays open; 0 = never.
func dueAgain(hour, now time.Time, open bool) int64 {
	age := now.Sub(hour.Add(time.Hour))
	if age > settleAtLast || age > settleAfter && !open {
		return 0
	}
	return micros(now.Add(min(max(age/8, 30*time.Second), 24*time.Hour)))
}

// readHour counts the messages whose ids were made within an hour. open: one of them has not ended, or could be tried again.
func (s statisticsStore) readHour(ctx context.Context, hour time.Time) (counted map[countedAt]*Traffic, open bool, err error) {
	counted = map[countedAt]*Traffic{}
	bounds := []any{idBefore(hour), idBefore(hour.Add(time.Hour))}
	err = s.engine.Reader().Each(ctx, selectHour, bounds, func(r row) error {
		var at countedAt
		var state, response string
		var accepted, answered int64
		if err := r.Scan(&at.agent, &at.channel, &state, &accepted, &answered, &response); err != nil {
			return err
		}
		if counted[at] == nil {
			counted[at] = &Traffic{}
		}
		counted[at].take(state, response)
		if answered > 0 && state == exchange.StateAnswered {
			counted[at].Took.count(time.Duration(max(0, answered-accepted)) * time.Microsecond)
		}
		open = open || !exchange.Terminal(state) || state == exchange.StateFailed
		return nil
	})
	return counted, open, err
}

// take counts one message by its state, and the cost of its answer.
func (t *Traffic) take(state, response string) {
	t.Received++
	switch state {
	case exchange.StateAnswered:
		t.Answered++
	case exchange.StateSilent:
		t.Silent++
	case exchange.StateFailed:
		t.Failed++
	case exchange.StateRefused:
		t.Refused++
	case exchange.StateCancelled:
		t.Cancelled++
	case exchange.StateHeld:
		t.Held++
	default:
		t.Waiting++
	}

	var stored normalized.Response
	if response == "" || json.Unmarshal([]byte(response), &stored) != nil {
		return
	}
	// The same bounds as where answers are charged.
	if cost, err := strconv.ParseFloat(strings.TrimSpace(stored.Metadata["cost"]), 64); err == nil && cost > 0 && cost <= 1e9 {
		t.Spend += int64(math.Round(cost * 1e6))
	}
}

// TrafficFilter selects what was counted.
type TrafficFilter struct {
	Since, Until time.Time     // Until is not among them
	Step         time.Duration // an hour or a day, UTC
	Agent        string        // empty = all, added up
}

// Traffic returns what was counted, by step and channel, the oldest step first; steps in which nothing came are left out.
func (s statisticsStore) Traffic(ctx context.Context, f TrafficFilter) (list []Traffic, err error) {
	step := f.Step.Microseconds()
	sums := "CAST(SUM(" + strings.ReplaceAll(trafficColumns, ", ", ") AS BIGINT), CAST(SUM(") + ") AS BIGINT)"
	query := `SELECT hour - hour % $1, channel, ` + sums + ` FROM channel_hours WHERE hour >= $2 AND hour < $3`
	arguments := []any{step, micros(f.Since), micros(f.Until)}
	if f.Agent != "" {
		query, arguments = query+` AND agent = $4`, append(arguments, f.Agent)
	}

	err = s.engine.Reader().Each(ctx, query+` GROUP BY 1, 2 ORDER BY 1, 2`, arguments, func(r row) error {
		var one Traffic
		var at int64
		into := []any{&at, &one.Channel}
		for _, n := range one.counts() {
			into = append(into, n)
		}
		err := r.Scan(into...)
		one.At = instant(at)
		list = append(list, one)
		return err
	})
	return list, err
}
