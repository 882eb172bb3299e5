package explore

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// patience bounds one statement that waits for nothing that the director sees.
	patience = 30 * time.Second
	// glance is the interval between two looks at a statement that takes long: whether it waits for a lock.
	glance = 2 * time.Millisecond
)

// director decides which of two operations makes its next step. A step is a statement, or a call of the outside world. All of an
// operation between two steps happens in memory.
type director struct {
	control *sql.DB

	lock    sync.Mutex
	active  bool
	changed chan struct{} // has a signal when something below changed
	actors  [2]actor
	steps   []step
}

// actor is an operation under way. Several of its steps may run at once: a statement that its caller has given up holds locks until the server
// has rolled back.
type actor struct {
	waiting []*request
	running []*request
	ended   bool
	err     error
}

type request struct {
	what    string
	process uint32 // of the server; 0 = not a statement
	grant   chan bool
}

// step is one that has ended, in the order of the ends.
type step struct {
	actor int
	what  string
}

func newDirector(control *sql.DB) *director {
	return &director{control: control, changed: make(chan struct{}, 1)}
}

func (d *director) signal() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// begin waits until the actor may make the step. It returns nil while no schedule runs.
func (d *director) begin(of int, what string, process uint32) *request {
	d.lock.Lock()
	if !d.active {
		d.lock.Unlock()
		return nil
	}
	r := &request{what: what, process: process, grant: make(chan bool, 1)}
	d.actors[of].waiting = append(d.actors[of].waiting, r)
	d.lock.Unlock()

	d.signal()
	if !<-r.grant {
		return nil
	}
	return r
}

// end notes that the step has ended.
func (d *director) end(of int, r *request) {
	d.lock.Lock()
	defer d.lock.Unlock()
	a := &d.actors[of]
	if i := slices.Index(a.running, r); i >= 0 {
		a.running = slices.Delete(slices.Clone(a.running), i, i+1)
		d.steps = append(d.steps, step{of, r.what})
	}
	d.signal()
}

// act makes a step that is not a statement.
func (d *director) act(of int, what string) {
	if r := d.begin(of, what, 0); r != nil {
		d.end(of, r)
	}
}

// choice is one decision of a schedule: which of the steps that were possible was made.
type choice struct{ taken, possible int }

// run lets two operations make their steps in the order of the prefix, and afterwards each as long as it can. At most so many times an operation
// gives way that could go on.
func (d *director) run(ctx context.Context, prefix []int, switches int, operations [2]func() error) (made []choice, steps []step, failures [2]error, err error) {
	d.lock.Lock()
	d.active, d.actors, d.steps = true, [2]actor{}, nil
	d.lock.Unlock()

	var group sync.WaitGroup
	for i, operation := range operations {
		group.Go(func() {
			result := operation()
			d.lock.Lock()
			d.actors[i].ended, d.actors[i].err = true, result
			d.lock.Unlock()
			d.signal()
		})
	}
	defer group.Wait()
	defer d.release()

	for current := 0; ; {
		ready, over, err := d.settle(ctx)
		if err != nil || over {
			d.lock.Lock()
			steps, failures := d.steps, [2]error{d.actors[0].err, d.actors[1].err}
			d.lock.Unlock()
			return made, steps, failures, err
		}

		possible := []int{current, 1 - current}
		switch {
		case !ready[current]:
			possible = possible[1:]
		case !ready[1-current] || switches == 0:
			possible = possible[:1]
		}

		taken := 0
		if len(made) < len(prefix) {
			taken = min(prefix[len(made)], len(possible)-1)
		}
		if len(possible) == 2 && taken == 1 && len(made) > 0 {
			switches--
		}
		made = append(made, choice{taken, len(possible)})
		current = possible[taken]
		d.grant(current)
	}
}

// release ends the schedule: what still waits goes on.
func (d *director) release() {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.active = false
	for i := range d.actors {
		for _, r := range d.actors[i].waiting {
			r.grant <- false
		}
		d.actors[i].waiting = nil
	}
}

func (d *director) grant(to int) {
	d.lock.Lock()
	defer d.lock.Unlock()
	a := &d.actors[to]
	next := a.waiting[0]
	a.running, a.waiting = append(slices.Clone(a.running), next), a.waiting[1:]
	next.grant <- true
}

// settle waits until no operation moves: each has ended, waits for its next step, or for a lock of the other one.
func (d *director) settle(ctx context.Context) (ready [2]bool, over bool, err error) {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); ; {
		states := d.states()
		moves := false
		for i, a := range states {
			ready[i] = len(a.running) == 0 && len(a.waiting) > 0
			moves = moves || !a.ended && !ready[i]
		}
		if !moves {
			return ready, states[0].ended && states[1].ended, nil
		}

		select {
		case <-d.changed:
			continue
		case <-ctx.Done():
			return ready, false, ctx.Err()
		case <-ticker.C:
		}

		stuck, blocked := true, false
		for i, a := range states {
			if a.ended || ready[i] {
				continue
			}
			waits := len(a.running) > 0
			for _, r := range a.running {
				if !waits || r.process == 0 {
					waits = false
					break
				}
				if waits, err = d.waits(ctx, r.process); err != nil {
					return ready, false, err
				}
			}
			stuck, blocked = stuck && waits, blocked || waits
		}
		if stuck && blocked && d.unchanged(states) {
			// The operation may wait for a lock that its own abandoned statement holds: let that statement run.
			for i, a := range states {
				ready[i] = ready[i] || !ready[1-i] && len(a.waiting) > 0
			}
			// Two that wait for each other are a deadlock, which PostgreSQL ends.
			if ready[0] || ready[1] {
				return ready, false, nil
			}
		}
		if time.Now().After(deadline) {
			return ready, false, fmt.Errorf("nothing moves: %s%s", describe(d.steps), d.held())
		}
	}
}

// held names the steps that are under way or wait for their turn.
func (d *director) held() string {
	var out strings.Builder
	for i, a := range d.states() {
		fmt.Fprintf(&out, "\n\t%c: ended %t", 'A'+rune(i), a.ended)
		for _, r := range a.running {
			fmt.Fprintf(&out, ", runs %s", r.what)
		}
		for _, r := range a.waiting {
			fmt.Fprintf(&out, ", may run %s", r.what)
		}
	}
	return out.String()
}

func (d *director) states() [2]actor {
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.actors
}

func (d *director) unchanged(before [2]actor) bool {
	now := d.states()
	for i := range now {
		if !slices.Equal(now[i].running, before[i].running) || len(now[i].waiting) != len(before[i].waiting) || now[i].ended != before[i].ended {
			return false
		}
	}
	return true
}

func (d *director) waits(ctx context.Context, process uint32) (waits bool, err error) {
	err = d.control.QueryRowContext(ctx, `SELECT cardinality(pg_blocking_pids($1)) > 0`, int64(process)).Scan(&waits)
	return waits, err
}

// explore calls run with the prefix of each schedule in turn, until it says that this is enough, there is no other one, or there were the most
// that it may make; it returns how many there were.
func explore(most int, run func(prefix []int) (made []choice, ends bool)) (schedules int) {
	var prefix []int
	for schedules < most {
		made, ends := run(prefix)
		schedules++
		var more bool
		if prefix, more = next(made); ends || !more {
			break
		}
	}
	return schedules
}

// next returns the schedule that differs from one in its last decision for which another step is left.
func next(made []choice) (prefix []int, more bool) {
	for i := range slices.Backward(made) {
		if made[i].taken+1 < made[i].possible {
			for _, earlier := range made[:i] {
				prefix = append(prefix, earlier.taken)
			}
			return append(prefix, made[i].taken+1), true
		}
	}
	return nil, false
}

var spaces = regexp.MustCompile(`\s+`)

// describe prints the steps of a schedule.
func describe(steps []step) string {
	var text strings.Builder
	for _, one := range steps {
		what := spaces.ReplaceAllString(one.what, " ")
		if len(what) > 110 {
			what = what[:110] + "…"
		}
		fmt.Fprintf(&text, "\n\t%c: %s", 'A'+one.actor, what)
	}
	return text.String()
}
