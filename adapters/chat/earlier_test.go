package chat_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/normalized"
)

// newest returns the turn of the newest message.
func (s *chatServer) newest() exchange.TurnRecord {
	s.Helper()
	turns, err := s.Store().Turns(s.Context(), exchange.TurnFilter{ByArrival: true, Limit: 1})
	if err != nil || len(turns) != 1 {
		s.Fatalf("%v, %v", turns, err)
	}
	return turns[0]
}

// TestSessionsFromBeforeGoOn: a session in which something was said before conversations had ids of ours goes on in its conversation, is read
// and is deleted, for its owner alone: one that a token holder named, one that was made up, and one of a guest.
func TestSessionsFromBeforeGoOn(t *testing.T) {
	t.Parallel()
	chatOnBoth(t, func(s *chatServer) {
		const guest = "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11"
		ada, bob := s.Token("ada"), s.Token("bob")
		s.post("/v1/agent/helper", ada, rpcBody("message/send", "", "", "x"))
		sample := s.newest()
		made := exchange.ConversationOwner{Kind: "chat session", Agent: "helper", Principal: sample.Principal}.MintName()
		for i, c := range []struct{ token, session string }{{ada, "mine"}, {ada, made}, {"", guest}} {
			thread := "chat:0123456789abcdef012345678" + string(rune('a'+i)) + ":helper"
			if c.token == "" {
				s.post("/v1/agent/helper", "", rpcBody("message/send", "", guest, "x")) // to know the principal
				sample = s.newest()
			}
			s.before(sample, c.session, thread)

			s.post("/v1/agent/helper", c.token, rpcBody("message/send", "", c.session, "and now?")).rpc(t)
			if got := s.newest(); got.ThreadID != thread {
				t.Errorf("the session %s goes on in %s", c.session, got.ThreadID)
			}
			_, _, read := s.Read(http.MethodGet, "/v1/chat?agent=helper", c.token, "", "Chat-Session", c.session)
			if !strings.Contains(read, "said before") || !strings.Contains(read, "and now?") {
				t.Errorf("the session %s reads %s", c.session, read)
			}
			for _, name := range []string{c.session, thread} {
				s.post("/v1/agent/helper", bob, rpcBody("message/send", "", name, "what was said?"))
				if got := s.newest(); got.ThreadID == thread && got.Principal != sample.Principal {
					t.Errorf("another client enters the session %s by %s", c.session, name)
				}
			}
			if status, _, body := s.Read(http.MethodDelete, "/v1/chat?agent=helper", c.token, "", "Chat-Session", c.session); status != http.StatusNoContent {
				t.Errorf("%d %s", status, body)
			}
			if _, _, read := s.Read(http.MethodGet, "/v1/chat?agent=helper", c.token, "", "Chat-Session", c.session); strings.Contains(read, "said before") {
				t.Errorf("the deleted session %s reads %s", c.session, read)
			}
		}
	})
}

// before stores a message of a session like another one, as a version did whose conversations had other ids.
func (s *chatServer) before(like exchange.TurnRecord, session, thread string) {
	s.Helper()
	turn := like
	turn.ID, turn.State, turn.Conversation, turn.ThreadID, turn.Response, turn.ReplyID = exchange.DerivedID(like.ID, thread), exchange.StateSilent, session, thread, nil, ""
	turn.Message.ID, turn.Message.ThreadID, turn.Message.Parts = exchange.RunMessageID(turn.ID), thread, []normalized.Part{normalized.Text("said before")}
	turn.Route, _ = json.Marshal(map[string]any{"chat": true, "run": turn.ID, "session": session})
	if err := s.Store().InTx(s.Context(), func(tx *store.Tx) error {
		_, _, err := tx.InsertTurn(s.Context(), turn, pipeline.Original{})
		return err
	}); err != nil {
		s.Fatalf("%v", err)
	}
}
