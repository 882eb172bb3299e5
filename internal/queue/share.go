package queue

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Ranks order the shares of a group.
const (
	RankResumed = iota // the job had begun when its process ended: nothing holds it back
	RankProven
	RankGuest
)

// maxGroup bounds the name of a group in bytes; a longer one is replaced by its hash.
const maxGroup = 128

// Share is where jobs of one kind wait behind each other: those of one member of a group with one rank. Shares are ordered
// by group, rank and member.
type Share struct {
	Group  string
	Rank   int
	Member string // a hash of NewJob.Member; empty without one
}

// Share returns where a new job waits.
func (j NewJob) Share() Share {
	share := Share{Group: j.Group, Rank: RankProven}
	if len(share.Group) > maxGroup {
		share.Group = digest(share.Group)
	}
	if j.Member != "" {
		share.Member = digest(j.Member)
	}
	if j.Guest {
		share.Rank = RankGuest
	}
	return share
}

func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// Compare orders shares.
func (l Share) Compare(other Share) int {
	return cmp.Or(strings.Compare(l.Group, other.Group), cmp.Compare(l.Rank, other.Rank), strings.Compare(l.Member, other.Member))
}
