package attacks

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// length is how long honest peers are watched before an attack, and during it at least. ATTACK_SECONDS makes it longer: then there
// are enough honest messages for a 99th percentile, and it is judged.
var length, judged = func() (time.Duration, bool) {
	seconds, err := strconv.Atoi(os.Getenv("ATTACK_SECONDS"))
	if err != nil || seconds < 1 {
		return 600 * time.Millisecond, false
	}
	return time.Duration(seconds) * time.Second, true
}()

// warmUp is the time in which connections are made, keys fetched, and the statements of PostgreSQL planned for the first time.
var warmUp = max(time.Second, length/2)

// answers counts what an attacker heard.
type answers struct {
	mu     sync.Mutex
	counts map[string]int
}

func (a *answers) add(answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts == nil {
		a.counts = map[string]int{}
	}
	a.counts[answer]++
}

func (a *answers) get(answer string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[answer]
}

func (a *answers) total() (total int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, count := range a.counts {
		total += count
	}
	return total
}

func (a *answers) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var texts []string
	for _, answer := range slices.Sorted(maps.Keys(a.counts)) {
		texts = append(texts, fmt.Sprintf("%d× %s", a.counts[answer], answer))
	}
	return strings.Join(texts, ", ")
}

// row is what one attack did: a row of the table.
type row struct {
	point, name    string
	before, during seen
	lasted         time.Duration
	processor      time.Duration // of the server, beyond what honest peers cost it before
	memory         int64         // by which the resident memory grew at most
	disk           int64         // by which the data grew until the end
	answers        *answers
	most           cost
}

// cost is what an attack may cost; zero = not bounded.
type cost struct {
	each   time.Duration // of a processor, for one request
	memory int64
}

// each is the processor time that one request of the attacker cost.
func (r row) each() time.Duration { return r.processor / time.Duration(max(1, r.answers.total())) }

// watched is a world in which honest peers write all the time.
type watched struct {
	*world
	honest    *honest
	shop      *shop
	alone     []period      // while no one attacks
	processor time.Duration // that the server used meanwhile
	rows      []*row
	under     []period // attack, beside rows
}

// watch begins to measure; what honest peers saw is known once the test ended.
func (w *world) watch() *watched {
	w.t.Helper()
	all := &watched{world: w, honest: newHonest(w)}
	all.honest.write()
	pause(w.t, warmUp)
	w.t.Cleanup(all.finish)
	all.rest(2 * length)
	return all
}

// rest measures honest peers alone.
func (a *watched) rest(howLong time.Duration) {
	a.t.Helper()
	began, processor := time.Now(), a.usedProcessor()
	pause(a.t, howLong)
	a.processor += a.usedProcessor() - processor
	a.alone = append(a.alone, period{began, time.Now()})
}

// usual is the share of a processor that honest peers cost the server.
func (a *watched) usual() float64 {
	var measured time.Duration
	for _, one := range a.alone {
		measured += one.to.Sub(one.from)
	}
	return float64(a.processor) / float64(measured)
}

// attack lets an attack run beside honest peers, and beside others. It does its work and ends; what is measured lasts the usual
// length at least.
func (a *watched) attack(point, name string, attack func(ctx context.Context, heard *answers), others ...func(ctx context.Context)) *row {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), length+2*patience)
	defer cancel()
	result := &row{point: point, name: name, answers: &answers{}}
	memory, disk := a.resetPeak(), a.used()
	began, processor := time.Now(), a.usedProcessor()
	var beside sync.WaitGroup
	for _, other := range others {
		beside.Go(func() { other(ctx) })
	}
	attack(ctx, result.answers)
	beside.Wait()
	if rest := length - time.Since(began); rest > 0 {
		pause(a.t, rest)
	}
	under := period{began, time.Now()}
	result.lasted = under.to.Sub(began)
	result.processor = max(0, a.usedProcessor()-processor-time.Duration(a.usual()*float64(result.lasted)))
	result.memory, result.disk = max(0, a.peak()-memory), a.used()-disk
	a.rows, a.under = append(a.rows, result), append(a.under, under)
	a.rest(length / 4)
	return result
}

// spread does something n times over the length of an attack, by workers that each begin no later than the schedule lets them.
func (a *watched) spread(ctx context.Context, n, workers int, do func(worker, i int)) {
	began := time.Now()
	var working sync.WaitGroup
	for worker := range workers {
		working.Go(func() {
			for i := worker; i < n; i += workers {
				timer := time.NewTimer(time.Until(began.Add(length * time.Duration(i) / time.Duration(n))))
				select {
				case <-timer.C:
					do(worker, i)
				case <-ctx.Done():
					timer.Stop()
					return
				}
			}
		})
	}
	working.Wait()
}

// finish ends the honest peers and demands that nothing of theirs was refused or left unanswered.
func (a *watched) finish() {
	a.honest.finish()
	alone := a.honest.during(a.alone...)
	alone.judge(a.t, "between the attacks")
	for i := range a.rows {
		a.rows[i].before, a.rows[i].during = alone, a.honest.during(a.under[i])
		a.rows[i].during.judge(a.t, a.rows[i].point+" "+a.rows[i].name)
	}
}

// complaint says in what an attack went too far; empty = in nothing. The 99th percentile of honest peers may be twice what it is while
// they are alone.
func (r row) complaint() string {
	if now, normal := r.during.quantile(.99), r.before.quantile(.99); judged && now > 2*normal {
		return fmt.Sprintf("the 99th percentile of honest peers is %s in %d messages, and %s while they are alone", now, r.during.sent, normal)
	}
	return r.costly()
}

// joined is the same attack measured once more, with what honest peers saw both times. What it costs is taken from the server that
// had nothing else to do: in the long run the server also works off what earlier attacks left, such as retried deliveries.
func (r row) joined(again row) row {
	again.before, again.during = r.before.and(again.before), r.during.and(again.during)
	return again
}

func pause(t *testing.T, length time.Duration) {
	t.Helper()
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("the test was stopped")
	}
}
