package a2a

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
	"inbox/policypart"
)

func TestSendBlocksUntilTheAnswer(t *testing.T) {
	b := setup(t)
	r := b.rpc(b.ada, "SendMessage", message("m1", "hello"))
	if r.status != 200 {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	golden(t, "send.json", r.body)

	got := b.rpc(b.ada, "GetTask", `{"id":"`+r.text(t, "result.task.id")+`"}`)
	golden(t, "get.json", got.body)
	if want, have := r.text(t, "result.task.artifacts.0.artifactId"), got.text(t, "result.artifacts.0.artifactId"); want != have {
		t.Errorf("artifact id changed from %s to %s", want, have)
	}
}

func TestSendInVersion03(t *testing.T) {
	b := setup(t)
	r := b.rpc(b.ada, "message/send",
		`{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hello"}]}}`)
	golden(t, "send-0.3.json", r.body)
	got := b.rpc(b.ada, "tasks/get", `{"id":"`+r.text(t, "result.id")+`"}`, "A2A-Version", "0.3.0")
	if state := got.text(t, "result.status.state"); state != "completed" {
		t.Errorf("state %q: %s", state, got.body)
	}
}

func TestSendOverREST(t *testing.T) {
	b := setup(t)
	r := b.do("POST", "/a2a/echo/rest/message:send", b.ada, message("m1", "hello"))
	golden(t, "send-rest.json", r.body)
	id := r.text(t, "task.id")
	for path, want := range map[string]int{
		"/a2a/echo/rest/tasks/" + id: 200, "/a2a/echo/rest/tasks?pageSize=1": 200, "/a2a/echo/rest/tasks/nothing": 404,
		"/a2a/echo/rest/nowhere": 404, "/a2a/echo/rest/tasks?pageSize=x": 400, "/a2a/echo/v1/tasks/" + id: 200,
	} {
		if got := b.do("GET", path, b.ada, ""); got.status != want {
			t.Errorf("GET %s: %d, want %d: %s", path, got.status, want, got.body)
		}
	}
	golden(t, "error-rest.json", b.do("GET", "/a2a/echo/rest/tasks/nothing", b.ada, "").body)
}

func TestTheMessageThatTheEngineGets(t *testing.T) {
	b := setup(t)
	var got exchange.TurnRecord
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		got = r.turn
		return echo(ctx, r)
	}
	b.rpc(b.ada, "SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","contextId":"chat","parts":[
		{"text":"**hi**","mediaType":"text/markdown"},{"text":"<p>a <b>b</b></p>","mediaType":"text/html; charset=utf-8"},{"text":"  "},
		{"raw":"aGVsbG8=","mediaType":"text/plain","filename":"a.txt"},{"data":{"k":[1,2]}},
		{"url":"https://x.test/p","mediaType":"text/html"},{"url":"https://x.test/f.png","mediaType":"image/png"}],
		"metadata":{"mentionable":{"agent_chain":{"hop":1,"max_hops":3}}}}}`)
	m := got.Message
	var parts []string
	for _, p := range m.Parts {
		parts = append(parts, fmt.Sprintf("%s %s %s%s%s", p.Kind, p.MIME, p.Content, p.Name, p.URL))
	}
	want := []string{
		"text text/markdown **hi**", "text text/markdown a **b**", "file text/plain a.txt", "file application/json ",
		"link  https://x.test/p", "file image/png ",
	}
	if strings.Join(parts, "|") != strings.Join(want, "|") {
		t.Errorf("parts %q, want %q", parts, want)
	}
	if m.Sender.Address != "@ada@agents.test" || m.Sender.AuthMethod != "a2a-oauth" || !m.Sender.Verified || len(m.Sender.Identities) != 1 {
		t.Errorf("sender %+v", m.Sender)
	}
	if e := m.Sender.Identities[0]; e.Proof.Type != "bearer-token" || e.Proof.TokenID == "" || e.Subject != "token:"+e.Proof.TokenID || e.Audience[0] != "@echo@agents.test" {
		t.Errorf("evidence %+v", e)
	}
	if m.RecipientCapabilities.MentionRelay.Kind != "none" || m.RecipientCapabilities.AgentChain.Hop != 1 {
		t.Errorf("capabilities %+v", m.RecipientCapabilities)
	}
	if !strings.HasPrefix(m.ThreadID, "chat.") || m.ID != "m1" || m.ReceivedVia != "a2a" || m.Recipient != "@echo@agents.test" {
		t.Errorf("message %+v", m)
	}
}

func TestRepeatedMessageIsTheSameTask(t *testing.T) {
	b := setup(t)
	const senders = 50
	ids := make([]string, senders)
	var group sync.WaitGroup
	for i := range senders {
		group.Go(func() { ids[i] = b.rpc(b.ada, "SendMessage", message("m1", "hello")).text(t, "result.task.id") })
	}
	group.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("tasks %v", ids)
		}
	}
	if b.engine.receives != 1 {
		t.Errorf("%d turns, want 1", b.engine.receives)
	}
	golden(t, "error-conflict.json", b.rpc(b.ada, "SendMessage", message("m1", "something else")).body)
	if other := b.rpc(b.bob, "SendMessage", message("m1", "hello")).text(t, "result.task.id"); other == ids[0] || other == "" {
		t.Errorf("another principal's message got task %q", other)
	}
}

func TestReturnImmediatelyAndWaitLimit(t *testing.T) {
	b := setup(t, func(o *Options) { o.WaitLimit = 30 * time.Millisecond })
	begun, release := make(chan struct{}, 8), make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		begun <- struct{}{}
		hold(ctx, release)
		return echo(ctx, r)
	}
	defer close(release)
	r := b.rpc(b.ada, "SendMessage", `{"configuration":{"returnImmediately":true},`+message("m1", "hello")[1:])
	if state := r.text(t, "result.task.status.state"); state != "TASK_STATE_SUBMITTED" {
		t.Errorf("immediate: %q: %s", state, r.body)
	}
	await.Receive(t, begun, "the agent to be asked")
	r = b.rpc(b.ada, "SendMessage", message("m1", "hello")) // waits for the same turn
	if state := r.text(t, "result.task.status.state"); state != "TASK_STATE_WORKING" {
		t.Errorf("after the limit: %q: %s", state, r.body)
	}
	r = b.rpc(b.ada, "message/send",
		`{"configuration":{"blocking":false},"message":{"kind":"message","messageId":"m3","role":"user","parts":[{"kind":"text","text":"x"}]}}`)
	if state := r.text(t, "result.status.state"); state != "submitted" {
		t.Errorf("0.3 not blocking: %q: %s", state, r.body)
	}
}

// asking answers the first turn of a task with a question and completes the second.
func asking(ctx context.Context, r *run) normalized.Response {
	if r.turn.Message.InReplyTo == "" {
		return normalized.Response{Status: normalized.StatusInputRequired, Parts: []normalized.Part{normalized.Text("which one?")}}
	}
	return echo(ctx, r)
}

func follow(id, task, extra string) string {
	return `{"message":{"messageId":"` + id + `","taskId":"` + task + `",` + extra + `"role":"ROLE_USER","parts":[{"text":"this one"}]}}`
}

func TestContinueATask(t *testing.T) {
	b := setup(t)
	b.engine.agent = asking
	first := b.rpc(b.ada, "SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","contextId":"c1","parts":[{"text":"buy"}]}}`)
	golden(t, "input-required.json", first.body)
	task := first.text(t, "result.task.id")

	wrong := b.rpc(b.ada, "SendMessage", follow("m2", task, `"contextId":"c2",`))
	if got := wrong.decode(t); got.Error == nil || got.Error.Code != -32602 {
		t.Errorf("other context: %s", wrong.body)
	}
	second := b.rpc(b.ada, "SendMessage", follow("m2", task, ""))
	golden(t, "continued.json", second.body)
	if again := b.rpc(b.ada, "SendMessage", follow("m2", task, "")); again.text(t, "result.task.status.state") != "TASK_STATE_COMPLETED" {
		t.Errorf("repeat of the second message: %s", again.body)
	}
	golden(t, "error-terminal.json", b.rpc(b.ada, "SendMessage", follow("m3", task, "")).body)
	if none := b.rpc(b.ada, "GetTask", `{"id":"`+task+`","historyLength":0}`); none.at(t, "result.history") != nil {
		t.Errorf("historyLength 0: %s", none.body)
	}
	if one := b.rpc(b.ada, "GetTask", `{"id":"`+task+`","historyLength":1}`); one.text(t, "result.history.0.messageId") != "m2" {
		t.Errorf("historyLength 1: %s", one.body)
	}
	listed := b.rpc(b.ada, "ListTasks", `{"contextId":"c1","historyLength":5,"includeArtifacts":true}`)
	if listed.at(t, "result.tasks.0.history.#") != 3.0 || listed.at(t, "result.tasks.0.artifacts.#") != 1.0 {
		t.Errorf("listed: %s", listed.body)
	}
}

func TestOnlyOneContinuesATask(t *testing.T) {
	b := setup(t)
	b.engine.agent = asking
	task := b.rpc(b.ada, "SendMessage", message("m1", "buy")).text(t, "result.task.id")
	var group sync.WaitGroup
	var mu sync.Mutex
	counts := map[int]int{}
	for i := range 20 {
		group.Go(func() {
			code := 0
			if got := b.rpc(b.ada, "SendMessage", follow(fmt.Sprint("f", i), task, "")).decode(t); got.Error != nil {
				code = got.Error.Code
			}
			mu.Lock()
			defer mu.Unlock()
			counts[code]++
		})
	}
	group.Wait()
	if counts[0] != 1 || counts[-32004] != 19 {
		t.Errorf("answers by code: %v", counts)
	}
}

func TestAFailedContinuationCanBeRepeated(t *testing.T) {
	b := setup(t)
	b.engine.agent = asking
	task := b.rpc(b.ada, "SendMessage", message("m1", "buy")).text(t, "result.task.id")
	broken := b.rpc(b.ada, "SendMessage", strings.Replace(follow("m2", task, ""), "this one", " ", 1))
	if got := broken.decode(t); got.Error == nil || !strings.HasPrefix(got.Error.Message, "message.parts") {
		t.Fatalf("empty message: %s", broken.body)
	}
	if r := b.rpc(b.ada, "SendMessage", follow("m3", task, "")); r.text(t, "result.task.status.state") != "TASK_STATE_COMPLETED" {
		t.Errorf("next message: %s", r.body)
	}
}

func TestAnswers(t *testing.T) {
	policy := func(kind string) normalized.Response {
		return normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{
			Kind: kind, Title: "Wait", Message: "please", URL: "https://evil.test/x", Accepts: nil,
		}}}}.Answering(normalized.Message{ID: "m"})
	}
	for name, c := range map[string]struct {
		response normalized.Response
		state    string
		text     string
	}{
		"silent":             {normalized.Response{Silent: true}, "COMPLETED", ""},
		"failed":             {normalized.Response{Status: "failed", Error: &normalized.ResponseError{Message: "sorry"}}, "FAILED", "sorry"},
		"failed wordless":    {normalized.Response{Status: "failed"}, "FAILED", sentenceFailed},
		"consent":            {policy(policypart.ConsentRequired), "AUTH_REQUIRED", "Wait\n\nplease"},
		"unauthorized":       {policy(policypart.Unauthorized), "AUTH_REQUIRED", "Wait\n\nplease"},
		"payment":            {policy(policypart.PaymentRequired), "INPUT_REQUIRED", "Wait\n\nplease"},
		"forbidden":          {policy(policypart.Forbidden), "FAILED", "Wait\n\nplease"},
		"too many":           {policy(policypart.TooManyRequests), "FAILED", "Wait\n\nplease"},
		"legal":              {policy(policypart.UnavailableForLegalReasons), "REJECTED", "Wait\n\nplease"},
		"down":               {policy(policypart.ServiceUnavailable), "FAILED", "Wait\n\nplease"},
		"kind of the future": {policy("captcha_required"), "FAILED", "Wait\n\nplease"},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.engine.agent = func(context.Context, *run) normalized.Response { return c.response }
			r := b.rpc(b.ada, "SendMessage", message("m1", "hello"))
			if got := r.text(t, "result.task.status.state"); got != "TASK_STATE_"+c.state {
				t.Errorf("state %s, want %s", got, c.state)
			}
			if got := r.text(t, "result.task.status.message.parts.0.text"); got != c.text {
				t.Errorf("text %q, want %q", got, c.text)
			}
			if r.at(t, "result.task.artifacts") != nil || strings.Contains(r.body, "evil.test") {
				t.Errorf("body %s", r.body)
			}
		})
	}
	b := setup(t)
	b.engine.agent = func(context.Context, *run) normalized.Response { return policy(policypart.PaymentRequired) }
	golden(t, "payment.json", b.rpc(b.ada, "SendMessage", message("m1", "hello")).body)
}

func TestParkedTurns(t *testing.T) {
	for _, c := range []struct{ state, reason, want string }{
		{exchange.StateHeld, "", "AUTH_REQUIRED"},
		{exchange.StateWaiting, "consent", "AUTH_REQUIRED"},
		{exchange.StateWaiting, "payment", "INPUT_REQUIRED"},
		{exchange.StateRefused, "policy of the operator", "REJECTED"},
	} {
		t.Run(c.state+" "+c.reason, func(t *testing.T) {
			b := setup(t)
			b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
				r.park(c.state, c.reason, nil)
				<-ctx.Done()
				return normalized.Response{}
			}
			r := b.rpc(b.ada, "SendMessage", message("m1", "hello"))
			if got := r.text(t, "result.task.status.state"); got != "TASK_STATE_"+c.want {
				t.Errorf("state %s, want %s", got, c.want)
			}
			if r.text(t, "result.task.status.message.parts.0.text") == "" || strings.Contains(r.body, "operator\"") {
				t.Errorf("body %s", r.body)
			}
		})
	}
}

func TestLargeFilesGoThroughTheBlobStore(t *testing.T) {
	b := setup(t)
	content := strings.Repeat("QUJD", 150_000) // 450 kB decoded
	r := b.rpc(b.ada, "SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[
		{"raw":"`+content+`","mediaType":"application/zip","filename":"a.zip"}]}}`)
	if got := r.text(t, "result.task.artifacts.0.parts.0.raw"); got != content {
		t.Errorf("%d bytes came back, want %d", len(got), len(content))
	}
	if got := r.text(t, "result.task.history.0.parts.0.raw"); got != content {
		t.Errorf("the history has %d bytes, want %d", len(got), len(content))
	}
	large := b.rpc(b.ada, "SendMessage", `{"message":{"messageId":"m2","role":"ROLE_USER","parts":[
		{"raw":"`+strings.Repeat("QUJD", maxHistoryFiles/3+1)+`","mediaType":"application/zip","filename":"a.zip"}]}}`)
	if got := large.text(t, "result.task.history.0.parts.0.url"); !strings.HasPrefix(got, "ni:///sha-256;") {
		t.Errorf("history has %q", got)
	}
}
