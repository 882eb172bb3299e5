package queue

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestNobodyIsPassedOverForEver: whatever waits and whatever ends, who has nothing running is served after the others had one turn
// each, a guest after guestShare proven senders, and never do more jobs run than there are places.
func TestNobodyIsPassedOverForEver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &sharing{
			T: t, places: newPlaces(KindOptions{
				Concurrency: rapid.IntRange(1, 6).Draw(t, "places"), PerMember: rapid.IntRange(0, 2).Draw(t, "per member"),
			}),
			waiting: map[Lane]int{}, members: map[Lane]int{}, groups: map[string]map[string]int{},
		}
		for group := range rapid.IntRange(1, 4).Draw(t, "groups") {
			for member := range rapid.IntRange(1, 4).Draw(t, "members") {
				rank := rapid.SampledFrom([]int{RankProven, RankProven, RankGuest}).Draw(t, "rank")
				s.lanes = append(s.lanes, Lane{Group: fmt.Sprint("g", group), Member: fmt.Sprint("m", member), Rank: rank})
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				s.waiting[rapid.SampledFrom(s.lanes).Draw(t, "lane")] += rapid.IntRange(1, 50).Draw(t, "jobs")
			},
			"end": func(t *rapid.T) {
				if len(s.running) == 0 {
					t.Skip("nothing runs")
				}
				at := rapid.IntRange(0, len(s.running)-1).Draw(t, "which")
				s.places.leave(s.running[at])
				s.running = append(s.running[:at], s.running[at+1:]...)
			},
			"turn over": func(t *rapid.T) {
				for _, lane := range s.running {
					s.places.leave(lane)
				}
				s.running = nil
				s.claim(rapid.IntRange(1, 8).Draw(t, "most"))
			},
			"claim": func(t *rapid.T) { s.claim(rapid.IntRange(1, 8).Draw(t, "most")) },
			"":      func(*rapid.T) { s.check() },
		})
	})
}

// sharing is a queue of which only the lanes are known.
type sharing struct {
	*rapid.T
	places  *places
	lanes   []Lane // in order of groups, as a claim finds them
	waiting map[Lane]int
	running []Lane

	members map[Lane]int              // grants in its group since a lane waits with nothing of it running
	groups  map[string]map[string]int // grants to each other group since a group waits with nothing of it running
}

// claim returns places to what waits.
func (s *sharing) claim(most int) {
	var asking []Lane
	for _, lane := range s.lanes {
		if s.waiting[lane] == 0 {
			continue
		}
		asking = append(asking, lane)
		if ofMember, ofGroup := s.runs(lane); ofMember == 0 {
			s.members[lane] += 0
			if ofGroup == 0 && s.groups[lane.Group] == nil {
				s.groups[lane.Group] = map[string]int{}
			}
		}
	}

	takes, _ := s.places.share(asking, most)
	for _, take := range takes {
		took := min(take.Count, s.waiting[take.Lane])
		for range take.Count - took { // places for jobs that are not there are given back
			s.places.leave(take.Lane)
		}
		s.waiting[take.Lane] -= took
		for range took {
			s.running = append(s.running, take.Lane)
		}
		delete(s.members, take.Lane)
		delete(s.groups, take.Lane.Group)
	}

	for _, take := range takes {
		for lane := range s.members {
			if lane.Group == take.Lane.Group {
				s.members[lane] += take.Count
			}
		}
		for _, others := range s.groups {
			others[take.Lane.Group] += take.Count
		}
	}
}

func (s *sharing) runs(lane Lane) (ofMember, ofGroup int) {
	for _, one := range s.running {
		if one.Group == lane.Group {
			ofGroup++
			if one.Member == lane.Member {
				ofMember++
			}
		}
	}
	return ofMember, ofGroup
}

func (s *sharing) check() {
	if most := s.places.options.Concurrency + s.places.reserve(); len(s.running) > most || len(s.running) != s.places.busy {
		s.Fatalf("%d jobs run, %d are counted, of at most %d", len(s.running), s.places.busy, most)
	}
	for lane, grants := range s.members {
		bound := 0
		for _, other := range s.lanes {
			switch {
			case other.Group != lane.Group:
			case lane.Rank == RankGuest && other.Rank == RankGuest:
				bound += guestShare + 1
			default:
				bound++
			}
		}
		if grants > bound {
			s.Fatalf("%+v waits while %d others of its group began", lane, grants)
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
