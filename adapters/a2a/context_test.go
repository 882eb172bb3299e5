package a2a_test

import (
	"net/http"
	"testing"

	"inbox/agents/runtime/value"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// say sends a message with a token to an agent, in a context unless it is empty. It returns the context of the answer, and the conversation
// as the agent is told it; empty = the message was refused.
func (w *whole) say(token, id, contextID string) (answered, thread string) {
	w.Helper()
	message := `{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"text":"hello"}]`
	if contextID != "" {
		message += `,"contextId":"` + contextID + `"`
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":` + message + `}}}`
	_, _, answer := w.Read(http.MethodPost, "/a2a/keeps", token, body, "Content-Type", "application/json", "A2A-Version", "1.0")
	given, err := value.Decode([]byte(answer), value.Limits{})
	if err != nil {
		w.Fatalf("%v: %s", err, answer)
	}
	task := value.Assoc(value.Assoc(value.Assoc(given)["result"])["task"])
	if len(task) == 0 {
		return "", ""
	}
	return value.Text(task["contextId"]), w.wasAsked().ThreadID
}

// TestContextsBelongToTheirClients: a context is a name that a client gives to one of its conversations, and gets back. It is a conversation
// of another client, too, if that one chooses the same name, and nothing that the client was shown or could know enters it.
func TestContextsBelongToTheirClients(t *testing.T) {
	t.Parallel()
	wholeOnBoth(t, func(w *whole) {
		eve := w.Token("eve")
		for i, contextID := range []string{"talk", "", "01a20969-0000-7000-8000-000000000000", "<m1@ann.test>"} {
			n := string(rune('a' + i))
			shown, thread := w.say(w.token, "m1"+n, contextID)
			if contextID != "" && shown != contextID || shown == "" || !exchange.IsConversationID(thread) {
				w.Fatalf("the context %q is shown as %q, in %q", contextID, shown, thread)
			}
			if again, same := w.say(w.token, "m2"+n, shown); again != shown || same != thread {
				w.Errorf("the context %q goes on as %q in %q, began in %q", shown, again, same, thread)
			}
			for _, name := range []string{shown, thread} {
				if _, got := w.say(eve, "m3"+n+name, name); got == thread {
					w.Errorf("another client enters the context %q by the name %q", shown, name)
				}
			}
			if _, got := w.say(w.token, "m4"+n, thread); got == thread {
				w.Errorf("the id %q of a conversation is a name of it", thread)
			}
		}
	})
}

// TestContextsFromBeforeGoOn: a context in which something was said before conversations had ids of ours goes on in its conversation, for
// its client alone.
func TestContextsFromBeforeGoOn(t *testing.T) {
	t.Parallel()
	wholeOnBoth(t, func(w *whole) {
		eve := w.Token("eve")
		_, _ = w.say(w.token, "m0", "") // to know the principal
		turns, err := w.Store().Turns(w.Context(), exchange.TurnFilter{Agent: "keeps", Limit: 1})
		if err != nil || len(turns) != 1 {
			w.Fatalf("%v, %v", turns, err)
		}
		minted := exchange.ConversationOwner{Kind: "a2a context", Agent: "keeps", Principal: turns[0].Principal}.MintName()
		for i, c := range []struct{ name, thread string }{{"talk", "talk.0123456789abcdef"}, {minted, minted}} {
			n := string(rune('a' + i))
			w.before(turns[0], "old"+n, c.name, c.thread)
			if shown, got := w.say(w.token, "m1"+n, c.name); got != c.thread || shown != c.name {
				w.Errorf("the context %q goes on as %q in %q", c.name, shown, got)
			}
			if _, got := w.say(eve, "m2"+n, c.name); got == c.thread {
				w.Errorf("another client enters the context %q", c.name)
			}
			if _, got := w.say(eve, "m3"+n, c.thread); got == c.thread {
				w.Errorf("another client enters the context by its id %q", c.thread)
			}
		}
	})
}

// before stores a message like another one, as a version did whose conversations had other ids.
func (w *whole) before(like exchange.TurnRecord, id, name, thread string) {
	w.Helper()
	turn := like
	turn.ID, turn.Reference, turn.State = exchange.DerivedID(like.ID, id), "", exchange.StateSilent
	turn.Conversation, turn.ThreadID, turn.Response, turn.ReplyID = name, thread, nil, ""
	turn.Message.ID, turn.Message.ThreadID, turn.Message.ReceivedAt = id, thread, identity.Now()
	turn.Message.Parts = []normalized.Part{normalized.Text("said before")}
	if err := w.Store().InTx(w.Context(), func(tx *store.Tx) error {
		_, _, err := tx.InsertTurn(w.Context(), turn, pipeline.Original{})
		return err
	}); err != nil {
		w.Fatalf("%v", err)
	}
}
