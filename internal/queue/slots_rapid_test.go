package queue

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestNobodyIsPassedOverForEver: whatever waits and whatever ends, who has nothing running is served after the others had one turn
// each, a guest after guestShare proven senders, and never do more jobs run than there are slots.
func TestNobodyIsPassedOverForEver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &sharing{
			T: t, slots: newSlots(KindOptions{
				Concurrency: rapid.IntRange(1, 6).Draw(t, "places"), PerMember: rapid.IntRange(0, 2).Draw(t, "per member"),
			}),
			waiting: map[Share]int{}, members: map[Share]int{}, groups: map[string]map[string]int{},
		}
		for group := range rapid.IntRange(1, 4).Draw(t, "groups") {
			for member := range rapid.IntRange(1, 4).Draw(t, "members") {
				rank := rapid.SampledFrom([]int{RankProven, RankProven, RankGuest}).Draw(t, "rank")
				s.shares = append(s.shares, Share{Group: fmt.Sprint("g", group), Member: fmt.Sprint("m", member), Rank: rank})
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				s.waiting[rapid.SampledFrom(s.shares).Draw(t, "lane")] += rapid.IntRange(1, 50).Draw(t, "jobs")
			},
			"end": func(t *rapid.T) {
				if len(s.running) == 0 {
					t.Skip("nothing runs")
				}
				at := rapid.IntRange(0, len(s.running)-1).Draw(t, "which")
				s.slots.leave(s.running[at])
				s.running = append(s.running[:at], s.running[at+1:]...)
			},
			"turn over": func(t *rapid.T) {
				for _, share := range s.running {
					s.slots.leave(share)
				}
				s.running = nil
				s.claim(rapid.IntRange(1, 8).Draw(t, "most"))
			},
			"claim": func(t *rapid.T) { s.claim(rapid.IntRange(1, 8).Draw(t, "most")) },
			"":      func(*rapid.T) { s.check() },
		})
	})
}

// sharing is a queue of which only the shares are known.
type sharing struct {
	*rapid.T
	slots   *slots
	shares  []Share // in order of groups, as a claim finds them
	waiting map[Share]int
	running []Share

	members map[Share]int             // grants in its group since a share waits with nothing of it running
	groups  map[string]map[string]int // grants to each other group since a group waits with nothing of it running
}

// claim returns slots to what waits.
func (s *sharing) claim(most int) {
	var asking []Share
	for _, share := range s.shares {
		if s.waiting[share] == 0 {
			continue
		}
		asking = append(asking, share)
		if ofMember, ofGroup := s.runs(share); ofMember == 0 {
			s.members[share] += 0
			if ofGroup == 0 && s.groups[share.Group] == nil {
				s.groups[share.Group] = map[string]int{}
			}
		}
	}

	takes, _ := s.slots.allot(asking, most)
	for _, take := range takes {
		took := min(take.Count, s.waiting[take.Share])
		for range take.Count - took { // slots for jobs that are not there are returned
			s.slots.leave(take.Share)
		}
		s.waiting[take.Share] -= took
		for range took {
			s.running = append(s.running, take.Share)
		}
		delete(s.members, take.Share)
		delete(s.groups, take.Share.Group)
	}

	for _, take := range takes {
		for share := range s.members {
			if share.Group == take.Share.Group {
				s.members[share] += take.Count
			}
		}
		for _, others := range s.groups {
			others[take.Share.Group] += take.Count
		}
	}
}

func (s *sharing) runs(share Share) (ofMember, ofGroup int) {
	for _, one := range s.running {
		if one.Group == share.Group {
			ofGroup++
			if one.Member == share.Member {
				ofMember++
			}
		}
	}
	return ofMember, ofGroup
}

func (s *sharing) check() {
	if most := s.slots.options.Concurrency + s.slots.reserve(); len(s.running) > most || len(s.running) != s.slots.busy {
		s.Fatalf("%d jobs run, %d are counted, of at most %d", len(s.running), s.slots.busy, most)
	}
	for share, grants := range s.members {
		bound := 0
		for _, other := range s.shares {
			switch {
			case other.Group != share.Group:
			case share.Rank == RankGuest && other.Rank == RankGuest:
				bound += guestShare + 1
			default:
				bound++
			}
		}
		if grants > bound {
			s.Fatalf("%+v waits while %d others of its group began", share, grants)
		}
	}
	for name, others := range s.groups {
		for other, grants := range others {
			if grants > 1 {
				s.Fatalf("nothing of %s runs while %d of %s began", name, grants, other)
			}
		}
	}
}
