package storetest

import (
	"encoding/json"
	"strings"
	"testing"

	"inbox/agents/runtime/tool/request"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// said is a text that must be nowhere after a session was deleted.
const said = "my-secret-words"

// spoken stores a turn that ended in the thread of a session, with said in every place that has text.
func (p *probe) spoken(session exchange.Session, id string) exchange.TurnRecord {
	p.Helper()
	turn := p.message(id)
	turn.ThreadID, turn.Message.ThreadID = session.ThreadID, session.ThreadID
	turn.Message.Parts = []normalized.Part{normalized.Text(said), {Kind: normalized.PartFile, MIME: "text/plain", Name: said, BytesRef: normalized.Stored(strings.Repeat("ab", 32))}}
	turn.Message.Sender.Profile = &normalized.SenderProfile{Extensions: map[string]json.RawMessage{"dev.inbox.chat": json.RawMessage(`"` + said + `"`)}}
	turn.Route = json.RawMessage(`{"chat":true,"history":[{"role":"user","text":"` + said + `"}]}`)
	original := pipeline.Original{Digest: strings.Repeat("cd", 32), MediaType: "application/json", Body: []byte(said)} // clients say the same
	p.tx(func(tx pipeline.Tx) error {
		if _, _, err := tx.InsertTurn(p.Context(), turn, original); err != nil {
			return err
		}
		if err := tx.AppendEvents(p.Context(), turn.ID, []exchange.Event{{Kind: exchange.EventDelta, Body: []byte(`{"kind":"text","text":"` + said + `"}`)}}); err != nil {
			return err
		}
		if _, err := tx.InsertToolRequest(p.Context(), exchange.ToolRequest{
			ID: "request " + turn.ID, Agent: turn.Agent, TurnID: turn.ID, ToolName: "client/x", Status: request.StatusCompleted, Request: []byte(`{"x":"` + said + `"}`),
		}); err != nil {
			return err
		}
		return tx.PutDocument(p.Context(), "agents.memory", turn.ID, []byte(said), p.now.Add(1e12))
	})

	return turn
}

// sessionsForgotten: nothing that was said in a session can be read after it was deleted, and other sessions keep theirs.
func sessionsForgotten(t *testing.T, p *probe) {
	session, other := p.session("me", "s1"), p.session("me", "s2")
	p.create(session)
	p.create(other)
	turns := make([]exchange.TurnRecord, 0, 60)
	for range 60 { // more than one transaction
		turns = append(turns, p.spoken(session, newID()))
	}

	running, kept := turns[59], p.spoken(other, newID())
	for _, turn := range append(turns[:59:59], kept) {
		p.ends(turn, normalized.Response{Parts: []normalized.Part{normalized.Markdown(said)}})
	}

	p.ok(p.Sessions.DeleteSession(t.Context(), "me", "s1"))
	p.tx(func(tx pipeline.Tx) error { // an agent of another node, which was not told yet
		return tx.AppendEvents(t.Context(), turns[0].ID, []exchange.Event{{Kind: exchange.EventDelta, Body: []byte(`{"kind":"text","text":"` + said + `"}`)}})
	})

	for i, turn := range append(turns[:59:59], kept) {
		if p.remembers(turn) != (turn.ID == kept.ID) {
			t.Fatalf("turn %d: what was said is left: %v", i, p.remembers(turn))
		}
	}

	if _, err := p.Records.Original(t.Context(), strings.Repeat("cd", 32)); err != nil {
		t.Errorf("the native form that another session has too: %v", err)
	}
	if !p.remembers(running) {
		t.Error("a turn that has not ended lost its question")
	}
	if _, found, err := p.Sessions.Session(t.Context(), "me", "s1"); found || err != nil {
		t.Errorf("the session is there, %v", err)
	}
	if again, err := p.Sessions.ForgetThread(t.Context(), session.Agent, session.ThreadID); again != 59 || err != nil {
		t.Errorf("again %d turns, %v", again, err)
	}

	p.ends(running, normalized.Response{})
	for _, thread := range []string{session.ThreadID, other.ThreadID} {
		_, err := p.Sessions.ForgetThread(t.Context(), session.Agent, thread)
		p.ok(err)
	}

	if _, err := p.Records.Original(t.Context(), strings.Repeat("cd", 32)); !fault.Is(err, fault.NotFound) {
		t.Errorf("the native form that nobody has any more: %v", err)
	}
	if _, stored := p.offer(turns[0]); stored {
		t.Error("a repeat is taken for a new message")
	}
}

// ends answers a turn.
func (p *probe) ends(turn exchange.TurnRecord, response normalized.Response) {
	p.Helper()
	reply := p.reply(turn)
	reply.Response = response
	p.tx(func(tx pipeline.Tx) error {
		_, err := tx.AnswerTurn(p.Context(), pipeline.Move{ID: turn.ID, From: []string{exchange.StateAccepted}, To: exchange.StateAnswered, At: p.now}, reply, "")
		return err
	})
}

// remembers reports whether any row about a turn has what was said.
func (p *probe) remembers(turn exchange.TurnRecord) bool {
	p.Helper()
	stored := p.turn(turn.ID)
	events, err := p.Pipeline.Events(p.Context(), turn.ID, 0, 100)
	p.ok(err)
	requests, err := p.Pipeline.ToolRequests(p.Context(), exchange.ToolRequestFilter{TurnID: turn.ID, All: true, Limit: 10})
	p.ok(err)
	note, _, err := p.Documents.Get(p.Context(), "agents.memory", turn.ID)
	p.ok(err)
	rows, err := json.Marshal([]any{stored, string(stored.Route), events, requests, string(note)})
	p.ok(err)
	return strings.Contains(string(rows), said)
}

func sessionsTurnOf(t *testing.T, p *probe) {
	turn := p.message("chat:run:r1")
	p.insert(turn)

	if found, err := p.Sessions.TurnOf(t.Context(), turn.Principal, "chat:run:r1"); err != nil || found.ID != turn.ID {
		t.Errorf("%+v, %v", found, err)
	}

	for _, c := range [][2]string{{"peer.example bob", "chat:run:r1"}, {turn.Principal, "chat:run:r2"}, {"\x00", "chat:run:r1"}} {
		if _, err := p.Sessions.TurnOf(t.Context(), c[0], c[1]); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %v", c, err)
		}
	}
}
