package e2e

import (
	"slices"
	"strings"
	"testing"

	"inbox/normalized"
)

// editsAndDeletes: what a person at the peer does to a note reaches the conversation, whether the agent answered or not.
func (x *exchangeOf) editsAndDeletes(t *testing.T) {
	for name, test := range map[string]func(*exchangeOf, *testing.T){
		"edit after the answer": (*exchangeOf).editsAfterwards, "edit before the answer": (*exchangeOf).editsMeanwhile,
		"delete after the answer": (*exchangeOf).deletesAfterwards, "delete before the answer": (*exchangeOf).deletesMeanwhile,
		"delete before the run": (*exchangeOf).deletesBeforeTheRun,
	} {
		t.Run(name, func(t *testing.T) { x.in(t, test) })
	}
}

// say sends a note that mentions the agent.
func (x *exchangeOf) say(content, inReplyTo string) sent {
	return x.peer.command("/mention", errand{To: x.s.Actor("memory"), Content: content, InReplyTo: inReplyTo})
}

// answered sends a note and waits for the reply.
func (x *exchangeOf) answered(content, inReplyTo string) (sent, noteActivity) {
	x.peer.t.Helper()
	question := x.say(content, inReplyTo)
	return question, readNote(x.peer.t, x.peer.await("the reply to "+question.Note, answers(question.Note)))
}

func (x *exchangeOf) edits(question sent, content string) {
	x.peer.command("/edit", errand{To: x.s.Actor("memory"), Note: question.Note, Content: content})
}

func (x *exchangeOf) deletes(question sent) {
	x.peer.command("/remove", errand{To: x.s.Actor("memory"), Note: question.Note})
}

// thinking sends a note while the agent is held and waits until it was asked.
func (x *exchangeOf) thinking(t *testing.T, content, inReplyTo string) sent {
	t.Helper()
	before := len(x.agent.questions())
	question := x.say(content, inReplyTo)
	eventually(t, "the agent is asked", func() bool { return len(x.agent.questions()) > before })
	return question
}

// askedWith returns the questions that have the words in their text.
func (x *exchangeOf) askedWith(words string) []normalized.Message {
	return slices.DeleteFunc(x.agent.questions(), func(m normalized.Message) bool { return !strings.Contains(textOf(m.Parts), words) })
}

// kept counts the rows that still have the words: messages, originals and the timeline.
func (x *exchangeOf) kept(t *testing.T, words string) int {
	t.Helper()
	count := 0
	for _, query := range []string{
		"SELECT id FROM turns WHERE message LIKE '%" + words + "%'", "SELECT digest FROM originals WHERE body LIKE '%" + words + "%'",
		"SELECT turn_id FROM events WHERE body LIKE '%" + words + "%'",
	} {
		found, err := x.s.Column(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		count += len(found)
	}
	return count
}

func (x *exchangeOf) editsAfterwards(t *testing.T) {
	question, reply := x.answered("the capital is Bonn", "")
	x.edits(question, "the capital is Berlin")
	x.answered("what did I say?", reply.Object.ID)
	if said := saidBefore(x.agent.last(t)); !strings.Contains(said, "Berlin") || strings.Contains(said, "Bonn") {
		t.Errorf("after the edit the history says: %s", said)
	}
	if n := len(x.askedWith("Berlin")); n != 0 {
		t.Errorf("the agent was asked the edited question %d times although it had answered", n)
	}
	if n := x.peer.countReplies(question.Note); n != 1 {
		t.Errorf("%d replies to the note", n)
	}
}

func (x *exchangeOf) editsMeanwhile(t *testing.T) {
	x.hold.Lock()
	question := x.thinking(t, "old words of a slow question", "")
	x.edits(question, "new words of a slow question")
	x.hold.Unlock()
	reply := readNote(t, x.peer.await("the reply to "+question.Note, answers(question.Note)))
	if !strings.Contains(reply.Object.Content, "new words") {
		t.Errorf("the answer is to the old words: %s", reply.Object.Content)
	}
	x.s.awaitState("")
	if n := x.peer.countReplies(question.Note); n != 1 {
		t.Errorf("%d replies to the note", n)
	}
}

func (x *exchangeOf) deletesAfterwards(t *testing.T) {
	question, reply := x.answered("my secret is xyzzy-afterwards", "")
	x.deletes(question)
	eventually(t, "the deleted words are erased", func() bool { return x.kept(t, "xyzzy-afterwards") == 0 })
	x.answered("what is my secret?", reply.Object.ID)
	if said := saidBefore(x.agent.last(t)); strings.Contains(said, "xyzzy-afterwards") {
		t.Errorf("the deleted words are in the history: %s", said)
	}
}

// saidBefore is what people said in the history of a message.
func saidBefore(message normalized.Message) string {
	var texts []string
	for _, turn := range message.History {
		if turn.Role == normalized.RoleUser {
			texts = append(texts, textOf(turn.Parts))
		}
	}
	return strings.Join(texts, "\n")
}

func (x *exchangeOf) deletesMeanwhile(t *testing.T) {
	x.hold.Lock()
	question := x.thinking(t, "my secret is xyzzy-meanwhile", "")
	x.deletes(question)
	x.hold.Unlock()
	eventually(t, "the deleted words are erased", func() bool { return x.kept(t, "xyzzy-meanwhile") == 0 })
	x.answered("hello after that", "")
	if n := x.peer.countReplies(question.Note); n != 0 {
		t.Errorf("%d replies to a note that was deleted before the answer", n)
	}
}

func (x *exchangeOf) deletesBeforeTheRun(t *testing.T) {
	_, begin := x.answered("let us begin", "")
	x.hold.Lock()
	first := x.thinking(t, "a slow question", begin.Object.ID)
	second := x.say("my secret is xyzzy-before", begin.Object.ID) // waits for its thread
	x.deletes(second)
	x.hold.Unlock()
	x.peer.await("the reply to "+first.Note, answers(first.Note))
	x.answered("and a third", begin.Object.ID)
	if n, replies := len(x.askedWith("xyzzy-before")), x.peer.countReplies(second.Note); n != 0 || replies != 0 {
		t.Errorf("the agent was asked %d times about a note that was deleted before its run and answered %d times", n, replies)
	}
	if n := x.kept(t, "xyzzy-before"); n != 0 {
		t.Errorf("the deleted words are in %d rows", n)
	}
}
