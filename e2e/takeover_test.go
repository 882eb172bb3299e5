package e2e

import (
	"strings"
	"testing"

	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/operator"
)

// writes sends a signed mail of ann to the agent, in answer to another one where an id is given.
func (p *post) writes(id, inReplyTo string) {
	p.t.Helper()
	extra := map[string]string{}
	if inReplyTo != "" {
		extra["In-Reply-To"], extra["References"] = "<"+inReplyTo+">", "<"+inReplyTo+">"
	}
	p.send("ann@sender.test", "echo@inbox.test", p.dkimsign(p.mail(id, "echo@inbox.test", extra)))
}

// TestTakeoverSurvivesKills: the server is killed after each step of two operators in a conversation by mail. Every mail has one reply,
// from whom it should be; a program that chats is told that a person answers.
func TestTakeoverSurvivesKills(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPost(t, database)
		const first, second, third, words = "t1@sender.test", "t2@sender.test", "t3@sender.test", "Ann, this is a person."
		p.writes(first, "")
		reply := p.outbox.await(t, first)

		begun := decodedAs[exchange.Takeover](t, p.inbox("takeover", "begin", first, "--as", "anna", "--json"))
		if begun.Holder != "operator:anna" || begun.Agent != "echo" {
			t.Errorf("begun: %+v", begun)
		}
		p.killed()
		p.writes(second, reply.Field("Message-ID"))
		if state := p.state(second); state != exchange.StateWaiting {
			t.Fatalf("the mail in the conversation is %s", state)
		}
		if got, fine := p.typed("", "takeover", "begin", first, "--as", "bert"); fine || !strings.Contains(got, "operator:anna has had this conversation since") {
			t.Errorf("a second operator: %v, %s", fine, got)
		}
		if got, fine := p.typed("", "reply", second, "Me too.", "--as", "bert"); fine || !strings.Contains(got, "operator:anna") {
			t.Errorf("an answer of the second operator: %v, %s", fine, got)
		}

		for range 2 { // the repeat of a command whose end was not seen
			p.inbox("reply", second, words, "--as", "anna", "--key", "once")
			p.killed()
		}
		written := p.outbox.await(t, second)
		if !strings.Contains(plain(written.Raw), words) || written.Field("Subject") != "Re: A question" {
			t.Errorf("the mail of the operator:\n%s", written.Raw)
		}

		p.writes(third, written.Field("Message-ID"))
		p.waiting(third)
		if open := listedAs[exchange.Takeover](t, p.inbox("takeover", "list", "--json")); len(open) != 1 || open[0].Waiting != 1 {
			t.Errorf("taken over: %+v", open)
		}
		p.inbox("takeover", "end", third, "--as", "anna", "--note", "Be brief.")
		p.killed()
		if back := p.outbox.await(t, third); !strings.Contains(plain(back.Raw), "what is this?") {
			t.Errorf("the mail of the agent:\n%s", back.Raw)
		}

		p.awaitIdle()
		for _, id := range []string{first, second, third} {
			if replies, _ := p.outbox.repliesTo(id); !sameMail(replies) {
				t.Errorf("%s has %d replies that differ", id, len(replies))
			}
			if shown := decodedAs[operator.Shown](t, p.inbox("show", "--json", id)); shown.Turn.State != exchange.StateAnswered || shown.Takeover != nil {
				t.Errorf("%s is %s, %+v", id, shown.Turn.State, shown.Takeover)
			}
		}

		talk := decodedAs[struct{ Session string }](t, p.inbox("chat", "--json", "@echo", "hello"))
		p.inbox("takeover", "begin", talk.Session, "--as", "anna")
		if got, _ := p.typed("", "chat", "--continue", "@echo", "again"); !strings.Contains(got, "A person answers this message.") {
			t.Errorf("a chat that is taken over: %s", got)
		}
	})
}

// sameMail reports whether there is one mail; a server that was killed after the last byte sends it again under the same id.
func sameMail(mails []load.Received) bool {
	for _, one := range mails {
		if one.Field("Message-ID") != mails[0].Field("Message-ID") {
			return false
		}
	}
	return len(mails) > 0
}
