package twopersons

import (
	"strings"
	"testing"
)

// TestHonestConversations shows that the world works: on every channel a person's answer arrives, their next message continues the
// conversation, and what is granted by the one who may grant it goes on. Without it a server that answers nobody would break no rule.
func TestHonestConversations(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		for channel := range channels {
			t.Run(channel, func(t *testing.T) {
				r := w.newRun(t, false)
				defer r.end()
				first := r.write(channel, r.next(channel, note{author: r.ann, agent: parrot, text: "My PIN is 4711."}))
				r.remembers(first)
				second := r.write(channel, r.next(channel, note{author: r.ann, agent: parrot, text: "What is it?", parent: first.id}))
				r.remembers(second, first)
				r.judge()
			})
		}

		t.Run("approval", func(t *testing.T) {
			r := w.newRun(t, false)
			defer r.end()
			m := r.write("mail", note{author: r.ann, agent: shop, text: refund})
			if len(r.asked) != 1 {
				t.Fatalf("boss was asked %d times", len(r.asked))
			}
			r.bossAnswers(r.asked[0], "approve")
			r.hears(m, "It is done")
			r.judge()
		})

		t.Run("consent", func(t *testing.T) {
			r := w.newRun(t, false)
			defer r.end()
			m := r.write("mail", note{author: r.ann, agent: parrot, text: book})
			r.press(r.ann, r.link(r.ann))
			r.hears(m, "It is done")
			r.judge()
		})
	})
}

// next writes a note as its network continues a conversation.
func (r *run) next(channel string, m note) note {
	parent := m.parent
	switch channel {
	case "fediverse":
		if parent != "" {
			m.parent = r.ann.actor.ID + "/notes/" + parent
		}
	case "mail":
	default: // programs name the conversation
		m.parent, m.thread = "", "talk@"+r.ann.name+".test"
	}
	return m
}

// remembers demands that the run for a note was told the earlier ones.
func (r *run) remembers(m note, earlier ...note) {
	r.t.Helper()
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	told, ran := r.ledger.given[m.word]
	if !ran {
		r.t.Fatalf("%s was not answered", m.word.text)
	}
	for _, one := range earlier {
		if !strings.Contains(told, one.word.text) {
			r.t.Fatalf("the run for %s has nothing of %s", m.word.text, one.word.text)
		}
	}
}

// hears demands that the author of a mail was sent a text.
func (r *run) hears(m note, text string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range m.author.mails {
		if strings.Contains(plainMail(one.raw), text) {
			return
		}
	}
	r.t.Fatalf("%s was not sent %q", m.author, text)
}
