package moderation

import (
	"context"
	"fmt"
)

// Reservation is what one message has taken of its limits while it is being stored. One of Commit and Release ends it;
// what follows has no effect, so that a deferred Release gives back what no transaction kept, be it after a panic. The
// nil Reservation and the zero value hold nothing. When the process dies before either, its counts are gone: the
// message, if it was stored, was free.
type Reservation struct {
	meter *Meter
	of    *counting
}

// counting is a message that is being stored, with all copies of it that arrived meanwhile: it is counted once, whichever
// copy is stored.
type counting struct {
	message   string // key in Meter.storing; empty = it has no copies
	holders   int
	committed bool
	written   bool // by Report: the database has the count already
	opens     bool
	taken     []taken
	row       sameRow
	words     *counter // of row; nil = not asked
}

type taken struct {
	counter *counter
	bound   bound
}

// Reserve takes a message's place in all limits, or reports that it is over one; then nothing was taken. When the
// database cannot be read the message is let in: limits must not stop a server. A second copy of a message that is being
// stored shares its reservation.
func (m *Meter) Reserve(ctx context.Context, s Subject) (*Reservation, Excess, bool) {
	now := m.options.Now()
	if excess, machine := m.machine(s, now); machine {
		return nil, excess, true
	}

	bounds, row := m.bounds(s, now), m.sameRow(s, now)
	if len(bounds) == 0 && row.key == "" {
		return nil, Excess{}, false
	}

	m.learnFor(ctx, s, bounds, row, now)

	m.mu.Lock()
	defer m.mu.Unlock()
	message := ""
	if s.Message != "" {
		message = fmt.Sprintf("%q %q %q %q %q", s.Agent, s.Channel, s.Principal, s.Carrier, s.Message)
		if first, being := m.storing[message]; being {
			first.holders++
			return &Reservation{m, first}, Excess{}, false
		}
	}

	known := m.remembered(s, now)
	for _, b := range bounds {
		if !known {
			b.most -= b.kept
		}
		if c := m.counter(b.key, b.ends); b.full(c.sum + c.pending + c.reserved) {
			return nil, excessOf(b, !b.full(c.sum+c.pending)), true
		}
	}

	if excess, over := m.repeated(row); over {
		return nil, excess, true
	}

	found := &counting{message: message, holders: 1, opens: s.Opens, row: row}
	for _, b := range bounds {
		if b.step == 0 {
			continue
		}
		c := m.counter(b.key, b.ends)
		c.reserved += b.step
		found.taken = append(found.taken, taken{c, b})
	}

	if row.key != "" {
		found.words = m.counter(row.key, row.ends)
		if found.words.saying == nil {
			found.words.saying = map[int64]int64{}
		}
		found.words.saying[row.said]++
	}

	if message != "" {
		m.storing[message] = found
	}

	return &Reservation{m, found}, Excess{}, false
}

func excessOf(b bound, contended bool) Excess {
	found := Excess{Limit: b.limit, Until: b.ends, Personal: b.personal, Contended: contended, bound: b}
	if b.brake != "" {
		found.Brake = fmt.Sprintf(b.brake, b.most, shortly(b.window))
	}
	return found
}

// Commit keeps the count: the message was stored.
func (r *Reservation) Commit() { r.end(true) }

// Release returns the count, unless another copy of the message was stored. After Commit it does nothing.
func (r *Reservation) Release() { r.end(false) }

func (r *Reservation) end(stored bool) {
	if r == nil || r.of == nil {
		return
	}

	m, of := r.meter, r.of
	r.of = nil
	m.mu.Lock()
	defer m.mu.Unlock()
	of.holders--

	if stored && !of.committed {
		of.committed = true
		m.settle(of, true)
	}

	if of.holders > 0 {
		return
	}

	if !of.committed {
		m.settle(of, false)
	}

	delete(m.storing, of.message)
}

// settle moves what was reserved to what was counted, or drops it; the caller holds the lock.
func (m *Meter) settle(of *counting, stored bool) {
	for _, t := range of.taken {
		c := t.counter
		if of.written {
			if !stored {
				m.owe(m.counter(t.bound.key, t.bound.ends), -t.bound.step)
			}
			continue
		}

		c.reserved -= t.bound.step
		if stored {
			m.alone(c, of.opens && t.bound.ofThread && c.sum+c.pending == 0)
			m.owe(c, t.bound.step)
		}
	}

	if of.words == nil {
		return
	}

	if of.words.saying[of.row.said]--; of.words.saying[of.row.said] == 0 {
		delete(of.words.saying, of.row.said)
	}
	if stored {
		m.say(of.words, of.row)
	}
}
