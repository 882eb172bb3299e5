package storetest

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/normalized"
)

var threadCases = map[string]func(*testing.T, *probe){
	"short ones come whole":         shortThread,
	"of long ones both ends come":   longThread,
	"every excerpt is exact":        exactExcerpts,
	"age":                           threadSince,
	"states":                        threadStates,
	"a sender in other threads":     personThread,
	"each party has its own":        partyThread,
	"people of a carrier":           carriedThread,
	"many senders in other threads": manySenders,
	"conversations from before":     earlierConversations,
	"conversations of now":          newConversations,
}

// excerpt reads with a query of the thread "thread 1".
func (p *probe) excerpt(query pipeline.ThreadQuery) pipeline.ThreadExcerpt {
	p.Helper()
	if query.Agent == "" {
		query.Agent, query.ThreadID = "echo", "thread 1"
	}
	if query.Principals == nil {
		query.Principals = []string{alice}
	}
	if query.Before == "" {
		query.Before = "~"
	}

	found, err := p.Pipeline.ThreadExcerpt(p.Context(), query)
	p.ok(err)
	return found
}

// brief writes an excerpt as the message ids of its exchanges, with + where there is an answer and - where only that.
func brief(e pipeline.ThreadExcerpt) string {
	return strings.TrimSpace(fmt.Sprintf("%s … %s = %d", briefly(e.Head), briefly(e.Tail), e.Total))
}

func briefly(exchanges []pipeline.Exchange) string {
	words := make([]string, len(exchanges))
	for i, e := range exchanges {
		words[i] = e.Turn.Message.ID
		if e.Answered() {
			words[i] += "+"
		}
		if e.Withdrawn {
			words[i] = "-" + words[i]
		}
	}
	return strings.Join(words, " ")
}

func (p *probe) reads(want string, query pipeline.ThreadQuery) {
	p.Helper()
	if got := brief(p.excerpt(query)); got != want {
		p.Errorf("%+v: %s, want %s", query, got, want)
	}
}

// conversation stores exchanges m0… of thread 1: a letter each, a = answered, q = not, s = silently.
func (p *probe) conversation(letters string) (turns []exchange.TurnRecord) {
	p.Helper()
	for i, letter := range letters {
		turn := p.message(fmt.Sprintf("m%d", i))
		p.insert(turn)

		switch letter {
		case 'a':
			p.answer(turn, "")
		case 's':
			reply := p.reply(turn)
			reply.Response = normalized.Response{InReplyTo: turn.Message.ID, Silent: true}
			p.tx(func(tx pipeline.Tx) error { return tx.InsertReply(p.Context(), reply, "") })
		}
		turns = append(turns, turn)
	}

	return turns
}

func shortThread(t *testing.T, p *probe) {
	p.reads("…  = 0", pipeline.ThreadQuery{Head: 2, Tail: 20})
	turns := p.conversation("aqs")
	p.reads("… m0+ m1 m2 = 4", pipeline.ThreadQuery{Head: 2, Tail: 20})
	p.reads("… m0+ m1 = 3", pipeline.ThreadQuery{Head: 2, Tail: 20, Before: turns[2].ID})
	p.reads("…  = 0", pipeline.ThreadQuery{Head: 2, Tail: 20, Before: turns[0].ID})
	p.reads("…  = 0", pipeline.ThreadQuery{Agent: "other", ThreadID: "thread 1", Head: 2, Tail: 20})
	found := p.excerpt(pipeline.ThreadQuery{Head: 2, Tail: 20}).Tail
	if e := found[0]; e.Turn.ReplyID != e.ReplyID || e.ReplyID == "" || e.At.IsZero() || e.Turn.Response == nil {
		t.Errorf("exchange %+v", e)
	}
	if e := found[1]; e.ReplyID != "" || !e.At.IsZero() || e.Turn.Response != nil {
		t.Errorf("exchange %+v", e)
	}
}

func longThread(_ *testing.T, p *probe) {
	p.conversation(strings.Repeat("a", 20))
	p.reads("m0+ … m17+ m18+ m19+ = 40", pipeline.ThreadQuery{Head: 2, Tail: 6})
	p.reads("m0+ m1+ … m18+ m19+ = 40", pipeline.ThreadQuery{Head: 3, Tail: 3})
	p.reads("… m19+ = 40", pipeline.ThreadQuery{Tail: 1})
	p.reads("m0+ …  = 40", pipeline.ThreadQuery{Head: 1})
	p.reads("m0+ … m18+ m19+ = 40", pipeline.ThreadQuery{Head: 1, Tail: 20, Enough: func(e pipeline.Exchange) bool {
		return e.Turn.Message.ID == "m18"
	}})
}

// exactExcerpts compares excerpts of all sizes with the whole thread.
func exactExcerpts(_ *testing.T, p *probe) {
	turns := p.conversation("aqasaqqa")
	whole := p.excerpt(pipeline.ThreadQuery{Tail: 100}).Tail
	for head := range 6 {
		for tail := range 10 {
			for end := range turns {
				p.exact(whole[:end], pipeline.ThreadQuery{Head: head, Tail: tail, Before: turns[end].ID})
			}
		}
	}
}

func (p *probe) exact(whole []pipeline.Exchange, query pipeline.ThreadQuery) {
	p.Helper()
	got, total := p.excerpt(query), count(whole)
	if got.Total != total || count(got.Tail) < min(query.Tail, total) || count(got.Head) < min(query.Head, total-count(got.Tail)) {
		p.Errorf("%+v: %s", query, brief(got))
	}
	if briefly(got.Tail) != briefly(whole[len(whole)-len(got.Tail):]) || briefly(got.Head) != briefly(whole[:len(got.Head)]) ||
		len(got.Head)+len(got.Tail) > len(whole) {
		p.Errorf("%+v: %s of %s", query, brief(got), briefly(whole))
	}
}

func count(exchanges []pipeline.Exchange) (turns int) {
	for _, e := range exchanges {
		turns += e.Turns()
	}
	return turns
}

// idAt makes an id of that instant for the turn, as if it had been accepted then.
func idAt(turn exchange.TurnRecord, at time.Time) exchange.TurnRecord {
	digits := fmt.Sprintf("%012x", at.UnixMilli())
	turn.ID = digits[:8] + "-" + digits[8:] + turn.ID[len("00000000-0000"):]
	return turn
}

func threadSince(_ *testing.T, p *probe) {
	for i := range 6 {
		turn := idAt(p.message(fmt.Sprintf("m%d", i)), p.now.Add(time.Duration(i-6)*time.Hour))
		p.insert(turn)
		p.answer(turn, "")
	}
	since := p.now.Add(-3*time.Hour - time.Minute)
	p.reads("… m3+ m4+ m5+ = 6", pipeline.ThreadQuery{Head: 2, Tail: 20, Since: since})
	p.reads("m3+ … m5+ = 6", pipeline.ThreadQuery{Head: 1, Tail: 2, Since: since})
	p.reads("…  = 0", pipeline.ThreadQuery{Head: 1, Tail: 2, Since: p.now.Add(time.Hour)})
}

// threadStates: held messages are no part of a conversation until the operator lets them in.
func threadStates(_ *testing.T, p *probe) {
	turns := make([]exchange.TurnRecord, 4)
	for i, state := range []string{exchange.StateHeld, exchange.StateHeld, exchange.StateAccepted, exchange.StateSilent} {
		turns[i] = p.message(fmt.Sprintf("m%d", i))
		turns[i].State = state
		p.insert(turns[i])
	}

	p.reads("… m2 m3 = 2", pipeline.ThreadQuery{Head: 1, Tail: 9})
	move := func(turn exchange.TurnRecord, from, to string) {
		p.tx(func(tx pipeline.Tx) error {
			_, err := tx.MoveTurn(p.Context(), pipeline.Move{ID: turn.ID, From: []string{from}, To: to, At: p.now})
			return err
		})
	}

	move(turns[0], exchange.StateHeld, exchange.StateAccepted)
	p.answer(turns[0], "")
	move(turns[1], exchange.StateHeld, exchange.StateCancelled)
	move(turns[2], exchange.StateAccepted, exchange.StateCancelled)
	p.reads("… m0+ m2 m3 = 4", pipeline.ThreadQuery{Head: 1, Tail: 9})
	p.reads("m0+ … m3 = 4", pipeline.ThreadQuery{Head: 1, Tail: 1})
	move(turns[2], exchange.StateCancelled, exchange.StateHeld)
	p.reads("… m0+ m3 = 3", pipeline.ThreadQuery{Head: 1, Tail: 9})
}

// say stores an answered exchange of a sender in a thread.
func (p *probe) say(id, principal, thread string, shared bool) exchange.TurnRecord {
	p.Helper()
	turn := p.message(id)
	turn.Principal, turn.ThreadID, turn.Message.ThreadID, turn.Shared = principal, thread, thread, shared
	p.insert(turn)
	p.answer(turn, "")
	return turn
}

func personThread(_ *testing.T, p *probe) {
	p.say("m0", "alice", "mail", true)
	p.say("m1", "bob", "mail", true)
	p.say("m2", "alice", "thread 1", true)
	p.say("m3", "bob", "thread 1", true)
	p.say("m4", "alice by mail", "mail 2", true)
	p.say("m5", "alice", "before it followed the person", false)
	elsewhere := p.message("m6")
	elsewhere.Agent, elsewhere.Principal, elsewhere.Message.Recipient, elsewhere.Shared = "other", "alice", "@other@inbox.example", true
	p.insert(elsewhere)
	last := p.say("m7", "alice", "thread 1", true)
	alice, both := []string{"alice"}, []string{"alice", "alice by mail", "alice"}
	p.reads("… m2+ m7+ = 4", pipeline.ThreadQuery{Head: 2, Tail: 20, Principals: alice})
	p.reads("… m0+ m2+ m7+ = 6", pipeline.ThreadQuery{Head: 2, Tail: 20, Principals: alice, Elsewhere: true})
	p.reads("… m0+ m2+ m4+ m7+ = 8", pipeline.ThreadQuery{Head: 2, Tail: 20, Principals: both, Elsewhere: true})
	p.reads("m0+ … m4+ m7+ = 8", pipeline.ThreadQuery{Head: 2, Tail: 4, Principals: both, Elsewhere: true})
	p.reads("m0+ m2+ … m4+ = 6", pipeline.ThreadQuery{Head: 3, Tail: 1, Principals: both, Elsewhere: true, Before: last.ID})
	p.reads("… m0+ m2+ m7+ = 6", pipeline.ThreadQuery{Head: 2, Tail: 20, Principals: append(alice, "nobody"), Elsewhere: true})
	p.reads("…  = 0", pipeline.ThreadQuery{Head: 2, Tail: 20, Principals: []string{}})
}

// partyThread: the history of a party is made of what it wrote and what was meant for it, in one thread of several people.
func partyThread(t *testing.T, p *probe) {
	say := func(id, principal string, audience exchange.Audience) exchange.TurnRecord {
		turn := p.message(id)
		turn.Principal, turn.Audience = principal, audience
		p.insert(turn)
		p.answer(turn, "note "+id)
		return turn
	}
	first := say("m0", "ann", exchange.Audience{Parties: []string{"bob", "carol", "bob"}})
	aside := say("m1", "ann", exchange.Audience{})
	say("m2", "bob", exchange.Audience{Parties: []string{"ann"}})
	say("m3", "ann", exchange.Audience{Open: true, Parties: []string{"bob"}})

	for principal, want := range map[string]string{
		"ann": "… m0+ m1+ m2+ m3+ = 8", "bob": "… m0+ m2+ m3+ = 6", "carol": "… m0+ m3+ = 4", "eve": "… m3+ = 2",
	} {
		p.reads(want, pipeline.ThreadQuery{Head: 2, Tail: 20, Principals: []string{principal}})
		p.reads(want, pipeline.ThreadQuery{Head: 2, Tail: 20, Principals: []string{principal, "nobody", "no one"}})
	}
	p.reads("m0+ … m3+ = 6", pipeline.ThreadQuery{Head: 1, Tail: 1, Principals: []string{"bob"}})

	for _, one := range []struct {
		principal, id string
		found         bool
	}{
		{"ann", "m0", true}, {"bob", "m0", true}, {"carol", "m0", true}, {"eve", "m0", false}, {"carol", "note m0", true}, {"eve", "note m0", false},
		{"ann", "m1", true}, {"bob", "m1", false}, {"bob", "note m1", false}, {"eve", "m3", true},
	} {
		_, found, err := p.Records.ContinuedMessage(t.Context(), "echo", normalized.ViaEmail, one.principal, []string{"unknown", one.id})
		if err != nil || found != one.found {
			t.Errorf("%s continues %s: %v, %v; want %v", one.principal, one.id, found, err, one.found)
		}
	}
	if _, found, err := p.Records.ContinuedMessage(t.Context(), "echo", "chat", "ann", []string{"m0"}); err != nil || found {
		t.Errorf("a message of another channel is continued: %v, %v", found, err)
	}

	for id, found := range map[string]bool{"note m0": true, "note m1": true, "m0": false, "unknown": false, "": false} {
		entry, replied, err := p.Records.RepliedMessage(t.Context(), "echo", normalized.ViaEmail, id)
		if err != nil || replied != found || found && entry.Message.ID != strings.TrimPrefix(id, "note ") {
			t.Errorf("%s answers %+v, %v, %v; want %v", id, entry, replied, err, found)
		}
	}
	for agent, channel := range map[string]string{"echo": "chat", "other": normalized.ViaEmail} {
		if _, found, err := p.Records.RepliedMessage(t.Context(), agent, channel, "note m0"); err != nil || found {
			t.Errorf("%s has replied on %s: %v, %v", agent, channel, found, err)
		}
	}

	// Two people have used one id: each finds its own.
	twin := say("m0", "eve", exchange.Audience{})
	for principal, want := range map[string]string{"ann": first.ID, "eve": twin.ID, "bob": first.ID} {
		entry, found, err := p.Records.ContinuedMessage(t.Context(), "echo", normalized.ViaEmail, principal, []string{"m0"})
		if err != nil || !found || entry.TurnID != want {
			t.Errorf("%s finds %s, %v, %v; want %s", principal, entry.TurnID, found, err, want)
		}
	}
	for principal, want := range map[string]bool{"ann": true, "bob": false} {
		entry, found, err := p.Records.SentMessage(t.Context(), "echo", principal, "m1")
		if err != nil || found != want || found && entry.TurnID != aside.ID {
			t.Errorf("%s sent m1: %+v, %v, %v", principal, entry, found, err)
		}
	}

	// What was answered in private is its asker's, whoever may read the question.
	asked := p.message("m4")
	asked.Principal, asked.Audience = "ann", exchange.Audience{Open: true}
	p.insert(asked)
	private := p.reply(asked)
	private.Response.Visibility = normalized.VisibilityDirect
	p.tx(func(tx pipeline.Tx) error { return tx.InsertReply(t.Context(), private, "") })
	p.reads("… m3+ m4+ = 10", pipeline.ThreadQuery{Tail: 4, Principals: []string{"ann"}})

	said, err := p.Records.Said(t.Context(), "echo", asked.ThreadID)
	if err != nil || len(said) < 4 || said[0] != private.Response.Parts[0].Content || said[1] != asked.Message.Parts[0].Content {
		t.Errorf("what was said last: %q, %v", said, err)
	}
	for _, other := range [][2]string{{"helper", asked.ThreadID}, {"echo", "another"}, {"echo", ""}, {"echo", "a\x00b"}} {
		if said, err := p.Records.Said(t.Context(), other[0], other[1]); err != nil || len(said) > 0 {
			t.Errorf("what was said to %s in %q: %q, %v", other[0], other[1], said, err)
		}
	}
	p.reads("… m3+ m4 = 5", pipeline.ThreadQuery{Tail: 3, Principals: []string{"carol"}})
	p.reads("… m3+ m4 = 9", pipeline.ThreadQuery{Tail: 3, Principals: []string{"ann"}, OthersRead: true})

	parties, err := p.Records.PartiesOf(t.Context(), first.ID)
	p.ok(err)
	p.same([]string{"bob", "carol"}, parties)
}

func carriedThread(_ *testing.T, p *probe) {
	for _, one := range []struct{ id, principal, carrier string }{
		{"m0", "alice", "token"}, {"m1", "bob", "token"}, {"m2", "token", ""}, {"m3", "alice", "another token"},
	} {
		turn := p.message(one.id)
		turn.Principal, turn.Carrier, turn.ThreadID, turn.Shared = one.principal, one.carrier, "thread of "+one.id, true
		turn.Message.ThreadID = turn.ThreadID
		p.insert(turn)
		p.answer(turn, "")
	}
	p.reads("… m0+ m3+ = 4", pipeline.ThreadQuery{Head: 1, Tail: 20, Principals: []string{"alice"}, Elsewhere: true})
	p.reads("… m1+ = 2", pipeline.ThreadQuery{Head: 1, Tail: 20, Principals: []string{"bob"}, Elsewhere: true})
	p.reads("… m2+ = 2", pipeline.ThreadQuery{Head: 1, Tail: 20, Principals: []string{"token"}, Elsewhere: true})
}

func manySenders(t *testing.T, p *probe) {
	var principals []string
	for i := range 20 {
		principals = append(principals, fmt.Sprintf("sender %d", i))
		p.say(fmt.Sprintf("m%d", i), principals[i], fmt.Sprintf("thread of %d", i), true)
	}

	for n := range 20 {
		found := p.excerpt(pipeline.ThreadQuery{Head: 2, Tail: 4, Principals: principals[:n:n], Elsewhere: true})
		if want := 2 * min(n, 16); found.Total != want || count(found.Tail) < min(4, want) {
			t.Errorf("%d senders: %s", n, brief(found))
		}
	}
}

// earlierConversations: a conversation whose id is from before ids were made of names is found by what its owner calls it, by no one else and
// on no other way.
func earlierConversations(t *testing.T, p *probe) {
	const token, contextID = "inbox.example token:1", "01a2234d-f8ca-764f-8bc7-a10d45f47890.0123456789abcdef"
	for _, one := range []struct{ channel, principal, carrier, thread, name string }{
		{"a2a", "ann", "", "talk.tag of ann", "talk"}, {"a2a", "ann", token, "talk.tag of ann at the token", "talk"},
		{"a2a", "ann", "", contextID, contextID}, {"a2a", "ann", "", "c-2.0123456789abcdef", "c-2"}, {"a2a", "ann", "", "long.tag", strings.Repeat("n", 300)},
		{"chat", "ann", "", "chat:ann:echo", "talk"}, {"chat", "eve", "", "chat:eve:echo", "session of eve"},
		{"email", "ann", "", "<m1@ann.example>", ""}, {"bridge", "ann", "", "session:1", "room"},
	} {
		turn := p.message(newID())
		turn.Channel, turn.Principal, turn.Carrier, turn.Conversation = one.channel, one.principal, one.carrier, one.name
		turn.ThreadID, turn.Message.ThreadID = one.thread, one.thread
		p.insert(turn)
	}

	for _, c := range []struct{ channel, agent, owner, carrier, name, want string }{
		{"a2a", "echo", "ann", "", "talk", "talk.tag of ann"},
		{"a2a", "echo", "ann", token, "talk", "talk.tag of ann at the token"},
		{"a2a", "echo", "ann", "", contextID, contextID},
		{"a2a", "echo", "ann", "", "c-2", "c-2.0123456789abcdef"},
		{"a2a", "echo", "ann", "", strings.Repeat("n", 300), "long.tag"},
		{"chat", "echo", "ann", "", "talk", "chat:ann:echo"},
		{"chat", "echo", "eve", "", "session of eve", "chat:eve:echo"},

		{"a2a", "echo", "eve", "", "talk", ""}, {"a2a", "echo", "eve", "", contextID, ""}, {"a2a", "echo", "eve", token, "talk", ""},
		{"a2a", "other", "ann", "", "talk", ""}, {"a2a", "echo", "ann", "another token", "talk", ""}, {"chat", "echo", "ann", "", contextID, ""},
		{"chat", "echo", "ann", "", "session of eve", ""}, {"a2a", "echo", "ann", "", "session of eve", ""},
		{"a2a", "echo", "ann", "", "talk.tag of ann", ""}, {"chat", "echo", "ann", "", "chat:ann:echo", ""},
		{"a2a", "echo", "ann", "", "<m1@ann.example>", ""}, {"chat", "echo", "ann", "", "<m1@ann.example>", ""},
		{"a2a", "echo", "ann", "", "room", ""}, {"a2a", "echo", "ann", "", "session:1", ""}, {"a2a", "echo", "ann", "", "new", ""}, {"a2a", "echo", "ann", "", "\x00", ""},
	} {
		name := exchange.ConversationName{Channel: c.channel, Agent: c.agent, Owner: c.owner, Carrier: c.carrier, Name: c.name}
		if got, err := p.Records.Conversation(t.Context(), name); err != nil || got != cmp.Or(c.want, name.ID()) {
			t.Errorf("%.60v is %q, %v", name, got, err)
		}
	}
}

// newConversations: where no conversation is from before, nothing but the name counts, whatever the rows say.
func newConversations(t *testing.T, p *probe) {
	name := exchange.ConversationName{Channel: "a2a", Agent: "echo", Owner: alice, Name: "talk"}
	turn := p.message("m1")
	turn.Channel, turn.Conversation, turn.ThreadID = name.Channel, name.Name, name.ID()
	p.insert(turn)
	for _, one := range []string{"talk", name.ID()} {
		asked := name
		asked.Name = one
		if got, err := p.Records.Conversation(t.Context(), asked); err != nil || got != asked.ID() {
			t.Errorf("%s is %s, %v", one, got, err)
		}
	}
}
