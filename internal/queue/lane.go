package queue

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Ranks order the lanes of a group.
const (
	RankResumed = iota // the job had begun when its process ended: nothing holds it back
	RankProven
	RankGuest
)

// maxGroup bounds the name of a group in bytes; a longer one is replaced by its hash.
const maxGroup = 128

// Lane is where jobs of one kind wait behind each other: those of one member of a group with one rank. Lanes are ordered
// by group, rank and member.
type Lane struct {
	Group  string
	Rank   int
	Member string // a hash of NewJob.Member; empty without one
}

// Lane returns where a new job waits.
func (j NewJob) Lane() Lane {
	lane := Lane{Group: j.Group, Rank: RankProven}
	if len(lane.Group) > maxGroup {
		lane.Group = digest(lane.Group)
	}
	if j.Member != "" {
		lane.Member = digest(j.Member)
	}
	if j.Guest {
		lane.Rank = RankGuest
	}
	return lane
}

func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// Compare orders lanes.
func (l Lane) Compare(other Lane) int {
	return cmp.Or(strings.Compare(l.Group, other.Group), cmp.Compare(l.Rank, other.Rank), strings.Compare(l.Member, other.Member))
}
