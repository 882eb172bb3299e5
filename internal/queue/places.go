package queue

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

const (
	// guestShare is how many jobs of proven members of a group begin for each one of its guests, while both wait.
	guestShare = 7
	// maxGroups bounds the groups that are remembered; beyond it those without a run are forgotten.
	maxGroups = 4096
)

// places are the runs of one kind in this process, by group and member, and the rules by which places are given out.
//
// Of the groups that wait the one with the fewest runs has the next place, of those the one that was served longest ago:
// a deficit round robin in which every run costs the same and a place is paid for as long as it is held. Within a group
// members are treated alike, behind them its guests. One group may have all places while no other one waits. Beyond the
// places there is a reserve of a quarter as many, for groups of which nothing runs, and half of it for proven members of
// whom nothing runs: who comes after others took all places for long does not wait for them.
type places struct {
	options KindOptions

	mu      sync.Mutex
	busy    int
	grouped bool // the kind has groups: there is somebody for the reserve
	waiting bool // a job found no place; no claim since then had places left over
	groups  map[string]*group
	grants  uint64
}

// group is what is known of the runs of one group.
type group struct {
	running int
	members map[string]int // runs
	cursors [RankGuest + 1]string
	served  uint64 // number of its last grant
	proven  int    // grants to proven members since one of the waiting guests had one
}

func newPlaces(options KindOptions) *places {
	return &places{options: options, groups: map[string]*group{}}
}

// reserve is the number of places beyond KindOptions.Concurrency.
func (p *places) reserve() int { return (p.options.Concurrency + 3) / 4 }

func (p *places) group(name string) *group {
	g := p.groups[name]
	if g == nil {
		if len(p.groups) >= maxGroups {
			for other, idle := range p.groups {
				if idle.running == 0 {
					delete(p.groups, other)
				}
			}
		}
		g = &group{members: map[string]int{}}
		p.groups[name] = g
	}
	return g
}

// limited reports whether the group runs as much as it can.
func (p *places) limited(name string, g *group) bool {
	return name != "" && p.options.Limit != nil && g.running >= p.options.Limit(name)
}

// full reports whether the member runs as much as one member may.
func (p *places) full(lane Lane, g *group) bool {
	return lane.Member != "" && p.options.PerMember > 0 && g.members[lane.Member] >= p.options.PerMember
}

// fits reports whether there is a place for a job of a lane, when the last ones of all are kept.
func (p *places) fits(lane Lane, g *group, kept int) bool {
	beyond := p.busy - p.options.Concurrency
	switch {
	case beyond+kept < 0:
		return true
	case beyond < 0 || beyond >= p.reserve() || lane.Group == "":
		return false
	case g.running == 0:
		return true
	}
	return lane.Rank != RankGuest && lane.Member != "" && g.members[lane.Member] == 0 && beyond < p.reserve()/2
}

func (p *places) grant(lane Lane, g *group) {
	p.busy++
	p.grants++
	g.running++
	g.served = p.grants
	p.grouped = p.grouped || lane.Group != ""
	if lane.Member != "" {
		g.members[lane.Member]++
	}
}

// seat takes a place for a job that is about to be stored.
func (p *places) seat(lane Lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.group(lane.Group)
	if p.limited(lane.Group, g) || p.full(lane, g) {
		return false
	}
	if p.waiting || !p.fits(lane, g, 0) {
		p.waiting = true
		return false
	}
	p.grant(lane, g)
	return true
}

// leave returns a place and reports whether its group or member ran as much as it can: a look before passed over what
// waits there, however many places were free, so that another look is needed.
func (p *places) leave(lane Lane) (bound bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.group(lane.Group)
	bound = p.limited(lane.Group, g) || p.full(lane, g)
	p.busy--
	g.running--
	if g.members[lane.Member]--; g.members[lane.Member] <= 0 {
		delete(g.members, lane.Member)
	}
	return bound
}

// open reports whether a claim could give a place: to anybody, or to somebody of whom nothing runs.
func (p *places) open() (anybody, somebody bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy < p.options.Concurrency, p.grouped && p.busy < p.options.Concurrency+p.reserve()
}

// share takes places for jobs of the lanes, at most so many. left = for one of the lanes there was none.
func (p *places) share(lanes []Lane, most int) (takes []Take, left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// While the claim is under way a quarter of the places stay for seats, if no job waits: who gets none would wake the
	// next claim.
	kept := 0
	if free := p.options.Concurrency - p.busy; free > 0 && !p.waiting {
		kept = free / 4
	}
	waiting := p.queues(lanes)
	asked := map[Lane]int{}
	for range most {
		lane, found := p.next(waiting, kept)
		if !found {
			break
		}
		asked[lane]++
	}
	for _, lane := range lanes {
		if asked[lane] > 0 {
			takes = append(takes, Take{Lane: lane, Count: asked[lane]})
		}
	}
	for _, q := range waiting {
		left = left || slices.ContainsFunc(q.lanes, func(lane Lane) bool {
			return asked[lane] == 0 && !p.full(lane, q.group) && (q.room > 0 || lane.Rank == RankResumed)
		})
	}
	return takes, left
}

// queued are the lanes of a group from which jobs may be taken now, by rank, those first whose turn it is.
type queued struct {
	name  string
	group *group
	ranks [RankGuest + 1][]Lane
	lanes []Lane
	room  int // runs that the group may still begin; jobs of RankResumed do not ask
}

func (p *places) queues(lanes []Lane) []queued {
	var all []queued
	for _, lane := range lanes {
		if len(all) == 0 || all[len(all)-1].name != lane.Group {
			g := p.group(lane.Group)
			q := queued{name: lane.Group, group: g, room: int(^uint(0) >> 1)}
			if lane.Group != "" && p.options.Limit != nil {
				q.room = max(p.options.Limit(lane.Group)-g.running, 0)
			}
			all = append(all, q)
		}
		q := &all[len(all)-1]
		if lane.Rank < RankResumed || lane.Rank > RankGuest || q.room == 0 && lane.Rank != RankResumed {
			continue
		}
		q.ranks[lane.Rank] = append(q.ranks[lane.Rank], lane)
		q.lanes = append(q.lanes, lane)
	}
	for i := range all {
		for rank := range all[i].ranks {
			after(all[i].ranks[rank], all[i].group.cursors[rank])
		}
	}
	return all
}

// after turns lanes in order of their members so that they begin behind the cursor.
func after(lanes []Lane, cursor string) {
	slices.SortFunc(lanes, func(a, b Lane) int {
		behind := func(lane Lane) int {
			if lane.Member > cursor {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(behind(a), behind(b)), strings.Compare(a.Member, b.Member))
	})
}

// next grants one place.
func (p *places) next(waiting []queued, kept int) (Lane, bool) {
	var chosen *queued
	var lane Lane
	for i := range waiting {
		q := &waiting[i]
		if chosen != nil && cmp.Or(cmp.Compare(chosen.group.running, q.group.running), cmp.Compare(chosen.group.served, q.group.served)) <= 0 {
			continue
		}
		if first, found := p.first(q, kept); found {
			chosen, lane = q, first
		}
	}
	if chosen == nil {
		return Lane{}, false
	}
	g := chosen.group
	p.grant(lane, g)
	g.cursors[lane.Rank] = lane.Member
	after(chosen.ranks[lane.Rank], lane.Member)
	if lane.Rank != RankResumed {
		chosen.room--
	}
	switch {
	case lane.Rank == RankGuest:
		g.proven = 0
	case lane.Rank == RankProven && len(chosen.ranks[RankGuest]) > 0:
		g.proven++
	}
	return lane, true
}

// first returns the lane of a group whose turn it is: of the members with the fewest runs the one that was served longest
// ago.
func (p *places) first(q *queued, kept int) (best Lane, found bool) {
	order := [...]int{RankResumed, RankProven, RankGuest}
	if q.group.proven >= guestShare {
		order = [...]int{RankResumed, RankGuest, RankProven}
	}
	for _, rank := range order {
		if rank != RankResumed && q.room <= 0 {
			continue
		}
		for _, lane := range q.ranks[rank] {
			if p.full(lane, q.group) || !p.fits(lane, q.group, kept) {
				continue
			}
			if !found || q.group.members[lane.Member] < q.group.members[best.Member] {
				best, found = lane, true
			}
		}
		if found {
			return best, true
		}
	}
	return Lane{}, false
}

// settle is told what became of a claim: whether something waits that found no place, or whether all lanes ran dry.
func (p *places) settle(left, dry bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case left && p.busy >= p.options.Concurrency:
		p.waiting = true
	case dry && !left:
		p.waiting = false
	}
}

// order puts groups first that may begin something, in the order in which they are served, and returns the cursors of the
// first ones.
func (p *places) order(names []string, most int) (first []string, cursors map[string][RankGuest + 1]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	limited := map[string]bool{}
	for _, name := range names {
		limited[name] = p.limited(name, p.group(name))
	}
	slices.SortStableFunc(names, func(a, b string) int {
		if limited[a] != limited[b] {
			if limited[b] {
				return -1
			}
			return 1
		}
		one, other := p.group(a), p.group(b)
		return cmp.Or(cmp.Compare(one.running, other.running), cmp.Compare(one.served, other.served))
	})
	first, cursors = names[:min(most, len(names))], map[string][RankGuest + 1]string{}
	for _, name := range first {
		cursors[name] = p.group(name).cursors
	}
	return first, cursors
}
