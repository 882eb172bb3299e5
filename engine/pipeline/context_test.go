package pipeline_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/history"
	"inbox/identity"
	"inbox/normalized"
)

// witness is an agent that answers "re: …" and keeps the history that it was given with each message id.
type witness struct {
	seen map[string]string
}

func (w *witness) agent(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	w.seen[turn.Message.ID] = tell(turn.Message.History)
	return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("re: " + normalized.PlainText(turn.Message.Parts))}})
}

// tell writes a history briefly.
func tell(turns []normalized.HistoricalMessage) string {
	texts := make([]string, len(turns))
	for i, h := range turns {
		texts[i] = strings.ReplaceAll(normalized.PlainText(h.Parts), "\n", " ")
	}
	return strings.Join(texts, " | ")
}

// ask lets a message be answered and returns the history that its agent saw.
func (w *witness) ask(t *testing.T, e *engine, in exchange.Inbound) string {
	t.Helper()
	turn := e.settled(t, e.receive(t, in).TurnID)
	if turn.State != exchange.StateAnswered {
		t.Fatalf("%s: state %s, %s", in.Message.ID, turn.State, turn.Reason)
	}
	return w.seen[in.Message.ID]
}

// TestLongThreadKeepsItsHead: the history of a thread that is longer than anyone reads begins with its first turns,
// and its prefix stays until the window moves.
func TestLongThreadKeepsItsHead(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		policy := history.Policy{KeepHead: 2, Window: 4, Slide: 2}
		e := start(t, url, w.agent, agents.Settings{History: policy})
		whole := []string{}
		for i := range 15 {
			got := w.ask(t, e, from("ana", fmt.Sprintf("m%d", i), "thread"))
			want := whole
			if n := len(whole); n > 6 {
				want = slices.Concat(whole[:2], whole[n-4:])
			}
			if got != strings.Join(want, " | ") {
				t.Fatalf("message %d saw %q, want %q", i, got, want)
			}
			whole = append(whole, fmt.Sprintf("hello m%d", i), fmt.Sprintf("re: hello m%d", i))
		}
	})
}

func TestHistoryOfAPerson(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{HistoryScope: agents.HistoryPerson, Unverified: agents.UnverifiedAnswer})
		expect := func(want string, in exchange.Inbound) {
			t.Helper()
			if got := w.ask(t, e, in); got != want {
				t.Errorf("%s of %s saw %q, want %q", in.Message.ID, in.Message.Sender.Address.String(), got, want)
			}
		}
		const mail, bo = "hello m1 | re: hello m1", "hello b1 | re: hello b1"
		expect("", from("ana", "m1", "mail"))
		expect("", from("bo", "b1", "meeting"))
		expect("", from("ana-on-mastodon", "n1", "note")) // no one said that this is ana
		expect(mail, from("ana", "m2", "meeting"))        // what bo said there was not meant for her
		shared := from("bo", "b1a", "meeting")
		shared.Audience.Parties = []string{principal("ana")}
		expect(bo, shared)
		expect(mail+" | hello m2 | re: hello m2 | hello b1a | re: hello b1a", from("ana", "m2a", "meeting"))
		expect("", impostor(from("ana", "i1", "forged")))
		link(t, e.store, "another agent", "ana", "bo")
		link(t, e.store, "echo", "ana", "ana-on-mastodon")
		const more = " | hello m2 | re: hello m2 | hello m2a | re: hello m2a"
		expect(mail+" | hello n1 | re: hello n1"+more, from("ana-on-mastodon", "n2", "note"))
		expect("", impostor(from("ana-on-mastodon", "i2", "forged too")))
		expect(bo+" | hello b1a | re: hello b1a", from("bo", "b2", "elsewhere"))
		if _, err := e.store.EndLinks(t.Context(), exchange.LinkFilter{Principal: principal("ana")}, exchange.LinkEnd{}); err != nil {
			t.Fatal(err)
		}
		expect("hello n1 | re: hello n1 | hello n2 | re: hello n2", from("ana-on-mastodon", "n3", "another note"))
	})
}

// TestLinkCountsForItsAgent: a link that another agent asked for, one whose side nobody trusts any more, one of a side that has
// another address now, and one that is of somebody who is linked with the other side show nothing.
func TestLinkCountsForItsAgent(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		settings := agents.Settings{HistoryScope: agents.HistoryPerson, Unverified: agents.UnverifiedAnswer}
		distrusted := principal("distrusted")
		e := startWith(t, url, w.agent, settings, func(options *pipeline.Options) {
			options.Believed = func(side exchange.LinkSide) bool { return side.Principal != distrusted }
		})
		for _, user := range []string{"patient", "distrusted", "far", "near"} {
			w.ask(t, e, from(user, user+"1", user))
		}
		link(t, e.store, "memory", "ana", "patient")
		link(t, e.store, "echo", "ana", "distrusted")
		link(t, e.store, "echo", "ana", "near")
		link(t, e.store, "echo", "near", "far")
		const near = "hello near1 | re: hello near1"
		if got := w.ask(t, e, from("ana", "a1", "a")); got != near {
			t.Errorf("ana saw %q, want %q", got, near)
		}
		if got, own := w.ask(t, e, from("patient", "p2", "p")), "hello patient1 | re: hello patient1"; got != own {
			t.Errorf("patient saw %q, want %q", got, own)
		}

		renamed := exchange.PersonLink{Agent: "echo", Digest: "shown", Sides: [2]exchange.LinkSide{
			{Principal: principal("bo"), Issuer: "inbox.test", Subject: "mailto:bo@peer.test", Address: "@former@peer.test"}, {Principal: principal("far")},
		}}
		if err := e.store.InTx(t.Context(), func(tx *store.Tx) error { return tx.PutLink(t.Context(), renamed) }); err != nil {
			t.Fatal(err)
		}
		if got := w.ask(t, e, from("bo", "b1", "b")); got != "" {
			t.Errorf("bo, whose address changed, saw %q", got)
		}
	})
}

// TestUnlinkByMessage: the word alone ends the sender's links with the agent, whoever was asked first; without links it is a message
// like others.
func TestUnlinkByMessage(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{name: "echo", settings: agents.Settings{HistoryScope: agents.HistoryPerson}, answer: says("as the agent says")}
		e := composed(t, url, nil, agent)
		word := func(user, id, text string) exchange.Inbound {
			in := from(user, id, id)
			in.Message.Parts = []normalized.Part{normalized.Text(text)}
			return in
		}
		link(t, e.store, "echo", "ana", "bo")
		link(t, e.store, "memory", "ana", "bo")

		if got := plain(e.answered(t, word("bo", "m1", "please do not unlink me")).Response); got[0] != "as the agent says" {
			t.Errorf("%q", got)
		}
		answer := word("bo", "m2", "@echo@inbox.test Unlink!\n\nEcho wrote:\n> To end that, send a message that is only the word \"unlink\".\n\n-- \nBo")
		answer.Message.Parts[0].New = "@echo@inbox.test Unlink!"
		if got := plain(e.answered(t, answer).Response); got[0] != "Done: @echo@inbox.test no longer treats this address and mailto:ana@peer.test as the same person." {
			t.Errorf("%q", got)
		}
		for agent, want := range map[string]int{"echo": 0, "memory": 1} {
			if links, err := e.store.LinksOf(t.Context(), agent, principal("ana")); err != nil || len(links) != want {
				t.Errorf("%s: %+v, %v", agent, links, err)
			}
		}
		if records := e.audits(t, exchange.AuditUnlinked); len(records) != 1 || records[0].Principal != principal("bo") || records[0].Agent != "echo" {
			t.Errorf("%+v", records)
		}
		if got := plain(e.answered(t, word("bo", "m3", "unlink")).Response); got[0] != "as the agent says" {
			t.Errorf("%q", got)
		}
	})
}

// TestHistoryOfAThread: with the default scope no one's other conversations are seen.
func TestHistoryOfAThread(t *testing.T) {
	w := &witness{seen: map[string]string{}}
	e := start(t, "sqlite", w.agent, agents.Settings{})
	link(t, e.store, "echo", "ana", "bo")
	for _, in := range []exchange.Inbound{from("ana", "m1", "one"), from("ana", "m2", "two"), from("bo", "m3", "three")} {
		if got := w.ask(t, e, in); got != "" {
			t.Errorf("saw %q", got)
		}
	}
}

// impostor writes in the sender's name without a proof.
func impostor(in exchange.Inbound) exchange.Inbound {
	in.Message.Sender.Identities, in.Message.Sender.Verified, in.Message.Sender.AuthMethod = nil, false, normalized.AuthNone
	return in
}

func principal(user string) string { return from(user, "", "").Message.Sender.Principal() }

// link makes one person of two users for the agent.
func link(t *testing.T, s *store.Store, agent, a, b string) {
	t.Helper()
	made := exchange.PersonLink{Agent: agent, Digest: "shown"}
	for i, user := range []string{a, b} {
		made.Sides[i] = exchange.LinkSide{
			Principal: principal(user), Issuer: "inbox.test", Subject: "mailto:" + user + "@peer.test", Method: identity.MethodEmailDMARC,
		}
	}
	if err := s.InTx(t.Context(), func(tx *store.Tx) error { return tx.PutLink(t.Context(), made) }); err != nil {
		t.Fatal(err)
	}
}
