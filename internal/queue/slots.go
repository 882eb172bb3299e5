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

// slots are the runs of one kind in this process, by group and member, and the rules by which slots are given out.
//
// Of the groups that wait the one with the fewest runs has the next slot, of those the one that was served longest ago:
// a deficit round robin in which every run costs the same and a slot is paid for as long as it is held. Within a group
// members are treated alike, behind them its guests. One group may have all slots while no other one waits. Beyond the
// slots there is a reserve of a quarter as many, for groups of which nothing runs, and half of it for proven members of
// whom nothing runs: a sender who comes after others took all slots for long does not wait for them.
type slots struct {
	options KindOptions

	mu      sync.Mutex
	busy    int
	grouped bool // the kind has groups, which the reserve is for
	waiting bool // a job found no slot; no claim since then had slots left over
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

func newSlots(options KindOptions) *slots {
	return &slots{options: options, groups: map[string]*group{}}
}

// reserve is the number of slots beyond KindOptions.Concurrency.
func (p *slots) reserve() int { return (p.options.Concurrency + 3) / 4 }

func (p *slots) group(name string) *group {
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
func (p *slots) limited(name string, g *group) bool {
	return name != "" && p.options.Limit != nil && g.running >= p.options.Limit(name)
}

// limitedOf returns which groups of the shares run as much as they can.
func (p *slots) limitedOf(shares []Share) map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	limited := map[string]bool{}
	for _, share := range shares {
		if _, known := limited[share.Group]; !known {
			limited[share.Group] = p.limited(share.Group, p.group(share.Group))
		}
	}
	return limited
}

// full reports whether the member runs as much as one member may.
func (p *slots) full(share Share, g *group) bool {
	return share.Member != "" && p.options.PerMember > 0 && g.members[share.Member] >= p.options.PerMember
}

// fits reports whether there is a slot for a job of a share, when the last ones of all are kept.
func (p *slots) fits(share Share, g *group, kept int) bool {
	beyond := p.busy - p.options.Concurrency
	switch {
	case beyond+kept < 0:
		return true
	case beyond < 0 || beyond >= p.reserve() || share.Group == "":
		return false
	case g.running == 0:
		return true
	}
	return share.Rank != RankGuest && share.Member != "" && g.members[share.Member] == 0 && beyond < p.reserve()/2
}

func (p *slots) grant(share Share, g *group) {
	p.busy++
	p.grants++
	g.running++
	g.served = p.grants
	p.grouped = p.grouped || share.Group != ""
	if share.Member != "" {
		g.members[share.Member]++
	}
}

// keep takes a slot for a job that is about to be stored.
func (p *slots) keep(share Share) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.group(share.Group)
	if p.limited(share.Group, g) || p.full(share, g) {
		return false
	}
	if p.waiting || !p.fits(share, g, 0) {
		p.waiting = true
		return false
	}

	p.grant(share, g)
	return true
}

// leave returns a slot and reports whether its group or member ran as much as it can: a look before passed over what
// waits there, however many slots were free, so that another look is needed.
func (p *slots) leave(share Share) (bound bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.group(share.Group)
	bound = p.limited(share.Group, g) || p.full(share, g)
	p.busy--
	g.running--

	if g.members[share.Member]--; g.members[share.Member] <= 0 {
		delete(g.members, share.Member)
	}
	return bound
}

// open reports whether a claim could grant a slot: to any share, or from the reserve.
func (p *slots) open() (free, reserve bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy < p.options.Concurrency, p.grouped && p.busy < p.options.Concurrency+p.reserve()
}

// allot takes slots for jobs of the shares, at most so many. left = for one of the shares there was none.
func (p *slots) allot(shares []Share, most int) (takes []Take, left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	// While the claim is under way a quarter of the slots stay for reservations, if no job waits: a message that gets none would wake the
	// next claim.
	kept := 0
	if free := p.options.Concurrency - p.busy; free > 0 && !p.waiting {
		kept = free / 4
	}

	waiting := p.queues(shares)
	asked := map[Share]int{}
	for range most {
		share, found := p.next(waiting, kept)
		if !found {
			break
		}
		asked[share]++
	}

	for _, share := range shares {
		if asked[share] > 0 {
			takes = append(takes, Take{Share: share, Count: asked[share]})
		}
	}

	for _, q := range waiting {
		left = left || slices.ContainsFunc(q.shares, func(share Share) bool {
			return asked[share] == 0 && !p.full(share, q.group) && (q.room > 0 || share.Rank == RankResumed)
		})
	}

	return takes, left
}

// queued are the shares of a group from which jobs may be taken now, by rank, those first whose turn it is.
type queued struct {
	name   string
	group  *group
	ranks  [RankGuest + 1][]Share
	shares []Share
	room   int // runs that the group may still begin; jobs of RankResumed do not ask
}

func (p *slots) queues(shares []Share) []queued {
	var all []queued
	for _, share := range shares {
		if len(all) == 0 || all[len(all)-1].name != share.Group {
			g := p.group(share.Group)
			q := queued{name: share.Group, group: g, room: int(^uint(0) >> 1)}
			if share.Group != "" && p.options.Limit != nil {
				q.room = max(p.options.Limit(share.Group)-g.running, 0)
			}
			all = append(all, q)
		}

		q := &all[len(all)-1]
		if share.Rank < RankResumed || share.Rank > RankGuest || q.room == 0 && share.Rank != RankResumed {
			continue
		}

		q.ranks[share.Rank] = append(q.ranks[share.Rank], share)
		q.shares = append(q.shares, share)
	}

	for i := range all {
		for rank := range all[i].ranks {
			after(all[i].ranks[rank], all[i].group.cursors[rank])
		}
	}

	return all
}

// after turns shares in order of their members so that they begin behind the cursor.
func after(shares []Share, cursor string) {
	slices.SortFunc(shares, func(a, b Share) int {
		behind := func(share Share) int {
			if share.Member > cursor {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(behind(a), behind(b)), strings.Compare(a.Member, b.Member))
	})
}

// next grants one slot.
func (p *slots) next(waiting []queued, kept int) (Share, bool) {
	var chosen *queued
	var share Share
	for i := range waiting {
		q := &waiting[i]
		if chosen != nil && cmp.Or(cmp.Compare(chosen.group.running, q.group.running), cmp.Compare(chosen.group.served, q.group.served)) <= 0 {
			continue
		}
		if first, found := p.first(q, kept); found {
			chosen, share = q, first
		}
	}

	if chosen == nil {
		return Share{}, false
	}

	g := chosen.group
	p.grant(share, g)
	g.cursors[share.Rank] = share.Member
	after(chosen.ranks[share.Rank], share.Member)

	if share.Rank != RankResumed {
		chosen.room--
	}

	switch {
	case share.Rank == RankGuest:
		g.proven = 0
	case share.Rank == RankProven && len(chosen.ranks[RankGuest]) > 0:
		g.proven++
	}

	return share, true
}

// first returns the share of a group whose turn it is: of the members with the fewest runs the one that was served longest
// ago.
func (p *slots) first(q *queued, kept int) (best Share, found bool) {
	order := [...]int{RankResumed, RankProven, RankGuest}
	if q.group.proven >= guestShare {
		order = [...]int{RankResumed, RankGuest, RankProven}
	}

	for _, rank := range order {
		if rank != RankResumed && q.room <= 0 {
			continue
		}

		for _, share := range q.ranks[rank] {
			if p.full(share, q.group) || !p.fits(share, q.group, kept) {
				continue
			}
			if !found || q.group.members[share.Member] < q.group.members[best.Member] {
				best, found = share, true
			}
		}

		if found {
			return best, true
		}
	}

	return Share{}, false
}

// settle is told what became of a claim: whether something waits that found no slot, or whether all shares ran dry.
func (p *slots) settle(left, dry bool) {
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
func (p *slots) order(names []string, most int) (first []string, cursors map[string][RankGuest + 1]string) {
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
