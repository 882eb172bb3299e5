package twopersons

import (
	"slices"
	"testing"

	"inbox/exchange"
)

// TestNamesOpenNothing: on every channel, a message whose ids and references are those of another person's conversation, on any channel,
// begins a conversation of its own. So does the message of the same person on another channel, or to another agent.
func TestNamesOpenNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		for _, theirs := range channelNames {
			for _, own := range channelNames {
				t.Run("a message by "+own+" with names of a conversation by "+theirs, func(t *testing.T) {
					r := w.newRun(t, false)
					defer r.end()
					r.apart(theirs, own)
					r.judge()
				})
			}
		}
	})
}

func (r *run) apart(theirs, own string) {
	r.t.Helper()
	first := r.write(theirs, note{author: r.ann, agent: parrot, thread: "talk@" + r.ann.name + ".test", text: "My PIN is 4711."})
	begun := r.conversationOf(first)
	if !exchange.IsConversationID(begun.ThreadID) {
		r.t.Fatalf("the conversation has the id %s", begun.ThreadID)
	}

	seen := map[string]string{begun.ThreadID: "the conversation of ann"}
	for _, name := range r.namesOf(theirs, own, first, begun) {
		m := note{author: r.eve, agent: parrot, thread: name, text: "What was said before?"}
		if own == "mail" || own == "fediverse" { // elsewhere it is the id of a task, and that of another person is refused
			m.parent = name
		}
		got := r.conversationOf(r.write(own, m))
		if of, taken := seen[got.ThreadID]; taken {
			r.t.Fatalf("a message of eve that names %s is in %s", name, of)
		}
		seen[got.ThreadID] = "the conversation that eve calls " + name
	}
	got := r.conversationOf(r.write(own, note{author: r.eve, agent: parrot, id: first.id, text: "What was said before?"}))
	if of, taken := seen[got.ThreadID]; taken {
		r.t.Fatalf("a message of eve with the id %s is in %s", first.id, of)
	}

	agent, thread := shop, first.thread
	if own != theirs {
		agent = parrot
	}
	if own == "connector" { // eve is in the room of that name
		thread = "room of " + r.ann.name
	}
	again := r.conversationOf(r.write(own, note{author: r.ann, agent: agent, id: first.id, thread: thread, text: "And now?"}))
	if of, taken := seen[again.ThreadID]; taken {
		r.t.Fatalf("a message of ann by %s to %s is in %s", own, agent, of)
	}
}

// channelNames are the channels in a fixed order.
var channelNames = []string{"mail", "fediverse", "A2A", "chat", "connector", "messenger"}

// namesOf are those by which others could know the conversation of a message: its id, what its owner calls it, and the id of the message. The
// connector decides who is in its rooms, so that the room's name means the same one for all of them.
func (r *run) namesOf(theirs, own string, m note, begun exchange.TurnRecord) (names []string) {
	for _, name := range []string{begun.ThreadID, m.thread, begun.Conversation, begun.Message.ID} {
		room := theirs == "connector" && own == theirs && name == m.thread
		if name != "" && !room && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// conversationOf returns the turn of a note, without which the test would show nothing.
func (r *run) conversationOf(m note) exchange.TurnRecord {
	r.t.Helper()
	one, ran := r.turnOf(m)
	if !ran {
		r.t.Fatalf("the message %s has not run", m.id)
	}
	stored, err := r.Store().Turn(r.Context(), one.id)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return stored
}
