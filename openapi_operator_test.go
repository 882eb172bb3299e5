package inbox

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"time"

	"inbox/agents"
	"inbox/agents/runtime/value"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// operates calls the operator API.
func (c *traffic) operates(s *chatServer) {
	c.Helper()
	token, _, err := s.server.Operator().Tokens.CreateAdmin(c.Context(), "typed")
	if err != nil {
		c.Fatal(err)
	}
	turns, err := s.server.store.Turns(c.Context(), exchange.TurnFilter{Agent: "echo", Limit: 1})
	if err != nil || len(turns) == 0 {
		c.Fatal(err)
	}
	c.call("GET", "/api/v1/turns/"+turns[0].ID, token, "", 200)
	c.call("GET", "/api/v1/turns/nothing", token, "", 404)
	c.call("GET", "/api/v1/held?limit=5", "wrong", "", 401)
	for _, path := range []string{"held", "approvals", "tool-requests?status=all", "people", "audit", "mail/suppressed", "reports", "stops"} {
		c.call("GET", "/api/v1/"+path, token, "", 200)
	}
	c.call("POST", "/api/v1/turns/"+turns[0].ID+"/retry", token, "", 409)
	c.call("POST", "/api/v1/turns/nothing/retry", token, "", 404)
	c.call("POST", "/api/v1/turns/retry", token, `{"since":"2h","dry_run":true}`, 200)
	c.call("POST", "/api/v1/turns/retry", token, `{"since":"long ago"}`, 400)
	s.fails(turns[0].ID)
	c.call("POST", "/api/v1/turns/"+turns[0].ID+"/retry", token, "", 204)
	c.operatesTools(s, token)
	c.operatesLists(token)
	c.operatesHeld(token)
	c.operatesApprovals(s, token)
	c.operatesRecords(s, token)
	c.operatesReplies(s, token)
}

func (c *traffic) operatesTools(s *chatServer, token string) {
	c.Helper()
	owner := s.token("customer")
	session := fmt.Sprint(c.call("POST", "/v1/sessions", owner, `{"agent":"keeps"}`, 201)["session_id"])
	for _, end := range []struct{ operation, body string }{{"submit", `{"success":true,"result":{"in_stock":3}}`}, {"cancel", ""}} {
		run := c.call("POST", "/v1/sessions/"+session+"/messages", owner, `{"message":"is there milk?"}`, 202)
		s.waits(fmt.Sprint(run["run_id"]))
		open := c.call("GET", "/api/v1/tool-requests?status=open&agent=keeps", token, "", 200)["tool_requests"].([]any)
		if len(open) != 1 {
			c.Fatalf("%d calls are open: %v", len(open), open)
		}
		id := value.Text(open[0].(map[string]any)["request_id"])
		c.call("GET", "/api/v1/tool-requests/"+id, token, "", 200)
		c.call("POST", "/api/v1/tool-requests/"+id+"/"+end.operation, token, end.body, 200)
	}
}

func (c *traffic) operatesLists(token string) {
	c.Helper()
	for _, list := range []string{"blocks", "allows"} {
		c.call("POST", "/api/v1/"+list, token, `{"target":"spam.example","reason":"spam"}`, 200)
		c.call("GET", "/api/v1/"+list, token, "", 200)
		c.call("DELETE", "/api/v1/"+list+"?target=spam.example", token, "", 204)
		c.call("POST", "/api/v1/"+list+"/import?dry_run=true", token, "spam.example\nnot a domain\n", 200, "Content-Type", "text/csv")
	}
}

// operatesHeld decides about messages of guests to an agent that holds them.
func (c *traffic) operatesHeld(token string) {
	c.Helper()
	for _, decision := range []struct{ operation, body string }{{"release", ""}, {"drop", `{"reason":"not our subject"}`}} {
		c.call("POST", "/v1/chat", "", `{"agent":"closed","message":"let me in"}`, 200)
		held := c.call("GET", "/api/v1/held?agent=closed", token, "", 200)["held"].([]any)
		if len(held) != 1 {
			c.Fatalf("%d messages are held: %v", len(held), held)
		}
		at := "/api/v1/held/" + fmt.Sprint(held[0].(map[string]any)["id"]) + "/" + decision.operation
		c.call("POST", at, token, decision.body, 204)
		c.call("POST", at, token, decision.body, 409)
	}
	c.call("POST", "/api/v1/held/nothing/release", token, "", 404)
}

// operatesApprovals decides about answers that are held back.
func (c *traffic) operatesApprovals(s *chatServer, token string) {
	c.Helper()
	careful := agents.Func(func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("A draft.")}})
	})
	if err := s.server.Register(exchange.AgentProfile{Name: "careful"}, careful, agents.Settings{ApproveReplies: agents.ApproveAlways}); err != nil {
		c.Fatal(err)
	}
	owner := s.token("reader")
	session := fmt.Sprint(c.call("POST", "/v1/sessions", owner, `{"agent":"careful"}`, 201)["session_id"])
	for _, operation := range []string{"approve", "deny"} {
		run := c.call("POST", "/v1/sessions/"+session+"/messages", owner, `{"message":"Hello"}`, 202)
		s.waits(fmt.Sprint(run["run_id"]))
		open := c.call("GET", "/api/v1/approvals?agent=careful", token, "", 200)["approvals"].([]any)
		if len(open) != 1 {
			c.Fatalf("%d approvals are open: %v", len(open), open)
		}
		at := "/api/v1/approvals/" + fmt.Sprint(open[0].(map[string]any)["id"])
		c.call("GET", at, token, "", 200)
		c.call("POST", at+"/edit", token, `{"text":"A better answer."}`, 200)
		c.call("POST", at+"/"+operation, token, "", 200)
		c.call("POST", at+"/"+operation, token, "", 409)
	}
}

// operatesRecords lifts what the server keeps about people and their addresses.
func (c *traffic) operatesRecords(s *chatServer, token string) {
	c.Helper()
	person := func(subject, address string) exchange.PersonIdentity {
		return exchange.PersonIdentity{
			Principal: "localhost " + subject, Issuer: "localhost", Subject: subject, Method: identity.MethodEmailDMARC, Address: address, LinkedAt: time.Now(),
		}
	}
	stop := exchange.ListEntry{
		ID: "019a0000-0000-7000-8000-000000000001", List: exchange.ListStop, Kind: exchange.TargetPrincipal, Target: "localhost mailto:ana@mail.test",
		Agent: "echo", CreatedAt: time.Now(),
	}
	if err := s.server.store.InTx(c.Context(), func(tx *store.Tx) error {
		return tx.LinkPerson(c.Context(), []exchange.PersonIdentity{person("acct:ana@social.test", "@ana@social.test"), person("mailto:ana@mail.test", "@ana@mail.test")})
	}); err != nil {
		c.Fatal(err)
	}
	if err := s.server.store.PutListEntries(c.Context(), stop); err != nil {
		c.Fatal(err)
	}
	if _, err := s.server.store.MailFailed(c.Context(), exchange.MailFailure{Address: "gone@mail.test", Kind: exchange.FailureHard, Reason: "550 no such user", DeliveryID: "d", At: time.Now()}); err != nil {
		c.Fatal(err)
	}
	for _, path := range []string{"people", "stops", "mail/suppressed"} {
		c.call("GET", "/api/v1/"+path, token, "", 200)
	}
	c.call("DELETE", "/api/v1/people?principal="+url.QueryEscape(stop.Target), token, "", 204)
	c.call("DELETE", "/api/v1/stops?agent=echo&target="+url.QueryEscape(stop.Target), token, "", 204)
	c.call("DELETE", "/api/v1/mail/suppressed?address=gone@mail.test", token, "", 204)
	c.call("DELETE", "/api/v1/mail/suppressed?address=gone@mail.test", token, "", 404)
}

// operatesReplies changes and takes back an answer in the fediverse.
func (c *traffic) operatesReplies(s *chatServer, token string) {
	c.Helper()
	mention := stranger("mention")
	mention.Message.ID, mention.Message.ReceivedVia, mention.Channel = "https://peer.test/notes/1", normalized.ViaActivityPub, normalized.ViaActivityPub
	mention.Message.RecipientCapabilities.MentionRelay = normalized.MentionRelay{Kind: normalized.RelayAddressing, EnvelopeFields: []string{"to", "cc"}, AlsoInline: true}
	mention.Route = []byte(`{"visibility":"public"}`)
	receipt, err := s.server.pipeline.Receive(c.Context(), mention)
	if err != nil {
		c.Fatal(err)
	}
	turn, err := s.server.pipeline.Wait(c.Context(), receipt.TurnID)
	if err != nil || turn.State != exchange.StateAnswered {
		c.Fatalf("%+v, %v", turn, err)
	}
	c.call("PUT", "/api/v1/replies/"+turn.ReplyID, token, `{"text":"Hello again","mime":"text/markdown"}`, 204)
	c.call("PUT", "/api/v1/replies/"+turn.ReplyID+"/pin", token, "", 204)
	c.call("DELETE", "/api/v1/replies/"+turn.ReplyID+"/pin", token, "", 204)
	c.call("DELETE", "/api/v1/replies/"+turn.ReplyID, token, "", 204)
	c.call("DELETE", "/api/v1/replies/"+turn.ReplyID, token, "", 409)
	c.call("PUT", "/api/v1/replies/"+turn.ReplyID+"/pin", token, "", 409)
}

// waits returns once a turn waits for somebody.
func (s *chatServer) waits(turnID string) {
	s.Helper()
	for event, err := range s.server.pipeline.Follow(s.Context(), turnID, 0) {
		switch {
		case err != nil:
			s.Fatal(err)
		case event.Kind == "turn."+exchange.StateWaiting:
			return
		}
	}
	s.Fatalf("the turn %s ended and did not wait", turnID)
}

// fails makes an ended turn one that failed without a word to its sender.
func (s *chatServer) fails(turnID string) {
	s.Helper()
	if err := s.server.store.Pipeline().InTx(s.Context(), func(tx pipeline.Tx) error {
		_, err := tx.MoveTurn(s.Context(), pipeline.Move{
			ID: turnID, From: []string{exchange.StateAnswered}, To: exchange.StateFailed, Reason: "plan reply: no way", At: time.Now(),
		})
		return err
	}); err != nil {
		s.Fatal(err)
	}
}
