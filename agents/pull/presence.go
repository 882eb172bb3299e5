package pull

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"inbox/agents"
	"inbox/internal/fault"
)

// labels say what a program is good for: sorted, each once. A turn goes to a program that has all that it requires.
type labels []string

const (
	maxLabels = 32
	// labelSeparator stands between labels in the keys of presence. No label has it.
	labelSeparator = " "
)

var oneLabel = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+-]{0,62}$`)

// readLabels reads the parameter labels: words with commas between them.
func readLabels(text string) (labels, error) {
	if text == "" {
		return nil, nil
	}

	list := strings.Split(text, ",")
	if len(list) > maxLabels {
		return nil, fault.InField("labels", "must be at most 32 words with commas between them")
	}
	for _, one := range list {
		if !oneLabel.MatchString(one) {
			return nil, fault.InField("labels", "must be words such as gpu,linux: letters, digits and . _ : / + - between them, at most 63 each")
		}
	}

	slices.Sort(list)
	return slices.Compact(list), nil
}

func (l labels) key() string { return strings.Join(l, labelSeparator) }

func labelsOf(key string) labels {
	if key == "" {
		return nil
	}
	return strings.Split(key, labelSeparator)
}

// meet reports whether a program with the labels has all that are required.
func (l labels) meet(requires []string) bool {
	return !slices.ContainsFunc(requires, func(one string) bool { return !slices.Contains(l, one) })
}

// presence counts who works for an agent on this node: the requests that wait for a turn, and the turns that a program
// has. So many turns it may have at once; the others wait without a run, and nothing is offered in vain.
type presence struct {
	waiting map[string]int       // by labels of the program
	working map[string]int       // by labels that the turn requires
	empty   map[string]time.Time // when the last request ended that got nothing, by its labels: its program comes again
}

// limit returns how many turns that require the labels may be with the agent at once.
func (p presence) limit(requires labels, now time.Time) int {
	expected := 0
	for has, count := range p.waiting {
		if labelsOf(has).meet(requires) {
			expected += count
		}
	}

	for has, at := range p.empty { // programs that ask without waiting are never there
		if expected == 0 && now.Sub(at) < Linger && labelsOf(has).meet(requires) {
			expected = 1
		}
	}
	return p.working[requires.key()] + expected
}

// left notes that a request ended that got nothing.
func (p *presence) left(has labels, now time.Time) {
	for key, at := range p.empty {
		if now.Sub(at) >= Linger {
			delete(p.empty, key)
		}
	}
	count(&p.empty)[has.key()] = now
}

// add changes a count; one of nothing is forgotten.
func add(counts *map[string]int, key string, change int) {
	count(counts)[key] += change
	if (*counts)[key] == 0 {
		delete(*counts, key)
	}
}

func count[V any](counts *map[string]V) map[string]V {
	if *counts == nil {
		*counts = map[string]V{}
	}
	return *counts
}

var _ agents.Labelled = (*Agent)(nil)

// Limit returns how many turns without labels the agent may have at once on this node now: one for each request that waits, and
// those that programs work on.
func (a *Agent) Limit() int { return a.LimitFor(nil) }

// LimitFor is Limit for turns that require labels, sorted: only requests of programs that have them all are counted.
func (a *Agent) LimitFor(requires []string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.presence.limit(requires, time.Now())
}

// wait counts a request that waits for a turn; the returned function reports whether it got one.
func (a *Agent) wait(has labels) (done func(taken bool)) {
	a.mu.Lock()
	add(&a.presence.waiting, has.key(), 1)
	a.mu.Unlock()
	a.service.options.Arrived(a.name)
	return func(taken bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		add(&a.presence.waiting, has.key(), -1)
		if !taken {
			a.presence.left(has, time.Now())
		}
	}
}

// work counts a turn that a program has, until done.
func (a *Agent) work(requires labels) (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	add(&a.presence.working, requires.key(), 1)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		add(&a.presence.working, requires.key(), -1)
	}
}

// deserted reports whether no program is there that could take an offer, and none is expected.
func (a *Agent) deserted(requires labels) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.presence.limit(requires, time.Now()) == a.presence.working[requires.key()]
}

// inherit expects the programs that wait at another agent of the name: they come to this one when their requests end.
func (a *Agent) inherit(earlier *Agent) {
	earlier.mu.Lock()
	var expected []labels
	for has := range earlier.presence.waiting {
		expected = append(expected, labelsOf(has))
	}
	for has := range earlier.presence.empty {
		expected = append(expected, labelsOf(has))
	}
	earlier.mu.Unlock()

	a.mu.Lock()
	defer a.mu.Unlock()
	for _, has := range expected {
		a.presence.left(has, time.Now())
	}
}
