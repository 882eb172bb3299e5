package moderation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// Names of the brakes.
const (
	brakeThread  = "answers_thread"
	brakeSender  = "answers_sender"
	brakeChain   = "answers_chain"
	brakeDomain  = "answers_domain"
	brakeSame    = "same"
	brakeMachine = "machine"
)

// conversation returns the limits of the channel by which a message came.
func (m *Meter) conversation(s Subject) exchange.ConversationLimits {
	if m.options.Conversation == nil {
		return exchange.ConversationLimits{}
	}
	return m.options.Conversation(s.Channel)
}

func (m *Meter) wayBounds(s Subject, now time.Time) []bound {
	limits := m.conversation(s)
	list := make([]bound, 0, len(limits.Thread)+len(limits.Sender))
	add := func(limit, subject, text string, ofThread bool, rates []exchange.Rate) {
		for _, r := range rates {
			begin := now.Truncate(r.Window)
			list = append(list, bound{
				limit: limit, key: limit + " " + r.Window.String() + " " + strconv.FormatInt(begin.Unix(), 36) + " " + subject,
				most: r.Amount, step: 1, ends: begin.Add(r.Window), ofThread: ofThread,
				brake: text, window: r.Window,
			})
		}
	}

	add(brakeThread, s.Agent+" "+s.Thread, "%d answers in this conversation within %s", true, limits.Thread)
	add(brakeSender, s.Agent+" "+s.Principal, "%d answers to this sender within %s", false, limits.Sender)
	if s.Chain == "" {
		return list
	}

	chain := limits.Thread
	if s.Astray { // the message that began the chain was answered as well, and counted in its conversation alone
		chain = slices.Clone(chain)
		for i := range chain {
			chain[i].Amount = max(chain[i].Amount-1, 1)
		}
	}
	add(brakeChain, s.Agent+" "+s.Chain, "%d answers along this chain of replies within %s", false, chain)
	if host := identity.RegistrableDomain(s.Host); s.Astray && host != "" {
		add(brakeDomain, s.Agent+" "+host, "%d answers to new senders of this domain who answer mails to others within %s", false, limits.Sender)
	}
	return list
}

// shortly writes 1h instead of 1h0m0s.
func shortly(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// machine finds who answers faster than a person reads.
func (m *Meter) machine(s Subject, now time.Time) (Excess, bool) {
	limit := m.conversation(s).Machine
	if limit <= 0 || s.Waited <= 0 || s.Waited >= limit {
		return Excess{}, false
	}
	return Excess{
		Limit: brakeMachine, Until: now, Brake: fmt.Sprintf("it came %v after the answer that it answers: a program wrote it", s.Waited.Round(time.Millisecond)),
	}, true
}

// sameRow is the row about what a sender said last in a thread: its amount is a sum of the words above, and how often in a
// row it was said below. So one row of the counters is enough, and two nodes that write at once begin a new row at worst.
type sameRow struct {
	key  string // empty = not asked
	said int64
	most int64
	lone bool
	ends time.Time
}

const (
	timesBits = 8
	maxTimes  = 1<<timesBits - 1
)

func (m *Meter) sameRow(s Subject, now time.Time) sameRow {
	most := m.conversation(s).Same
	if most <= 0 {
		return sameRow{}
	}

	said := sumOf(s.Said)
	if said == 0 {
		return sameRow{}
	}

	begin := now.Truncate(day)
	return sameRow{
		key:  brakeSame + " " + strconv.FormatInt(begin.Unix(), 36) + " " + s.Agent + " " + s.Thread + " " + s.Principal,
		said: said, most: int64(min(most, maxTimes-1)), lone: s.Opens, ends: begin.Add(day),
	}
}

// repeated reports that the words were said too often. Messages that are being stored count, whatever order they will
// have; the caller holds the lock.
func (m *Meter) repeated(row sameRow) (Excess, bool) {
	if row.key == "" {
		return Excess{}, false
	}

	c := m.counter(row.key, row.ends)
	times := c.times(row.said)
	if times+c.saying[row.said] < row.most {
		return Excess{}, false
	}

	return excessOf(bound{
		limit: brakeSame, key: row.key + " " + strconv.FormatInt(row.said, 36), most: row.most, ends: row.ends,
		brake: "the same words %d times in a row within %s", window: day,
	}, times < row.most), true
}

// times is how often in a row the words were said last.
func (c *counter) times(said int64) int64 {
	if last := c.sum + c.pending; last>>timesBits == said {
		return last & maxTimes
	}
	return 0
}

// say counts the words of a message that was stored; the caller holds the lock.
func (m *Meter) say(c *counter, row sameRow) {
	before := c.sum + c.pending
	m.owe(c, row.said<<timesBits+min(c.times(row.said)+1, maxTimes)-before)
	m.alone(c, row.lone && before == 0)
}

// sumOf is a sum of 40 bits over what is new in a message: its text without the blanks that mail programs add, and its
// files. 0 = it says nothing.
func sumOf(parts []normalized.Part) int64 {
	sum, said := sha256.New(), false
	words := make([]byte, 0, 4<<10) // each word alone would cost more than all of the hash
	for i := range parts {
		part, text := &parts[i], parts[i].Content
		switch {
		case part.Kind == normalized.PartText && part.New != "":
			text = part.New
		case part.BytesRef != nil:
			text = part.BytesRef.Digest + part.BytesRef.URL + part.BytesRef.DataBase64
		}

		if rest, is := strings.CutPrefix(text, "Subject: "); is && part.Kind == normalized.PartText {
			if _, body, found := strings.Cut(rest, "\n\n"); found {
				text = body
			}
		}

		for word := range strings.FieldsSeq(text) {
			said = true
			if words = append(append(words, word...), ' '); len(words) > 4<<10-64 {
				_, _ = sum.Write(words)
				words = words[:0]
			}
		}
	}

	_, _ = sum.Write(words)
	if !said {
		return 0
	}

	return int64(binary.BigEndian.Uint64(sum.Sum(nil))>>24) | 1
}
