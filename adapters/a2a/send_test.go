package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

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
	compare(t, "send.json", r.body)

	got := b.rpc(b.ada, "GetTask", `{"id":"`+r.text(t, "result.task.id")+`"}`)
	compare(t, "get.json", got.body)
	if want, have := r.text(t, "result.task.artifacts.0.artifactId"), got.text(t, "result.artifacts.0.artifactId"); want != have {
		t.Errorf("artifact id changed from %s to %s", want, have)
	}
}

func TestSendInVersion03(t *testing.T) {
	b := setup(t)
	r := b.rpc(b.ada, "message/send",
		`{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hello"}]}}`)
	compare(t, "send-0.3.json", r.body)
	got := b.rpc(b.ada, "tasks/get", `{"id":"`+r.text(t, "result.id")+`"}`, "A2A-Version", "0.3.0")
	if state := got.text(t, "result.status.state"); state != "completed" {
		t.Errorf("state %q: %s", state, got.body)
	}
}

func TestSendOverREST(t *testing.T) {
	b := setup(t)
	r := b.do("POST", "/a2a/echo/rest/message:send", b.ada, message("m1", "hello"))
	compare(t, "send-rest.json", r.body)
	id := r.text(t, "task.id")
	for path, want := range map[string]int{
		"/a2a/echo/rest/tasks/" + id: 200, "/a2a/echo/rest/tasks?pageSize=1": 200, "/a2a/echo/rest/tasks/nothing": 404,
		"/a2a/echo/rest/nowhere": 404, "/a2a/echo/rest/tasks?pageSize=x": 400, "/a2a/echo/v1/tasks/" + id: 200,
	} {
		if got := b.do("GET", path, b.ada, ""); got.status != want {
			t.Errorf("GET %s: %d, want %d: %s", path, got.status, want, got.body)
		}
	}
	compare(t, "error-rest.json", b.do("GET", "/a2a/echo/rest/tasks/nothing", b.ada, "").body)
}

//contract:shows envelope-24 message-5 message-8 message-11 message-17 message-19 message-34 message-41 message-44 message-50
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
		"text text/markdown **hi**", "text text/markdown a **b**", "file text/plain a.txt", "artifact application/json ",
		"link  https://x.test/p", "file image/png ",
	}
	if strings.Join(parts, "|") != strings.Join(want, "|") {
		t.Errorf("parts %q, want %q", parts, want)
	}
	if m.Sender.Address.String() != "@ada@agents.test" || m.Sender.AuthMethod != "a2a-oauth" || !m.Sender.Verified || len(m.Sender.Identities) != 1 {
		t.Errorf("sender %+v", m.Sender)
	}
	if e := m.Sender.Identities[0]; e.Proof.Type != "bearer-token" || e.Proof.TokenID == "" || e.Subject != "token:"+e.Proof.TokenID || e.Audience[0] != "@echo@agents.test" {
		t.Errorf("evidence %+v", e)
	}
	if m.RecipientCapabilities.MentionRelay.Kind != "none" || m.RecipientCapabilities.AgentChain.Hop != 1 {
		t.Errorf("capabilities %+v", m.RecipientCapabilities)
	}
	if m.ThreadID != exchange.ConversationID(ChannelName, "echo", m.Sender.Principal(), "chat") || m.ID != "m1" || m.ReceivedVia != "a2a" || m.Recipient != "@echo@agents.test" {
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
	compare(t, "error-conflict.json", b.rpc(b.ada, "SendMessage", message("m1", "something else")).body)
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

//contract:shows message-47
func TestContinueATask(t *testing.T) {
	b := setup(t)
	b.engine.agent = asking
	first := b.rpc(b.ada, "SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","contextId":"c1","parts":[{"text":"buy"}]}}`)
	compare(t, "input-required.json", first.body)
	task := first.text(t, "result.task.id")

	wrong := b.rpc(b.ada, "SendMessage", follow("m2", task, `"contextId":"c2",`))
	if got := wrong.decode(t); got.Error == nil || got.Error.Code != -32602 {
		t.Errorf("other context: %s", wrong.body)
	}
	second := b.rpc(b.ada, "SendMessage", follow("m2", task, ""))
	compare(t, "continued.json", second.body)
	if again := b.rpc(b.ada, "SendMessage", follow("m2", task, "")); again.text(t, "result.task.status.state") != "TASK_STATE_COMPLETED" {
		t.Errorf("repeat of the second message: %s", again.body)
	}
	compare(t, "error-terminal.json", b.rpc(b.ada, "SendMessage", follow("m3", task, "")).body)
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

//contract:shows message-23
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
	compare(t, "payment.json", b.rpc(b.ada, "SendMessage", message("m1", "hello")).body)
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

const sentOne = `"messageId":"ID","role":"ROLE_USER","extensions":["urn:example:one","urn:example:two"],"metadata":{"id":9007199254740993,"f":1.50,"deep":{"n":[12345678901234567890]}},` +
	`"parts":[{"text":"  <b>bold</b>\u0007 ","mediaType":"text/html","metadata":{"k":"v"}},{"text":"plain"},{"text":"  "},` +
	`{"data":{"n":9007199254740993,"list":[1.0,1e3]},"filename":"named.json","mediaType":"application/vnd.x+json","metadata":{"m":9007199254740993}},` +
	`{"raw":"eyJhIjoxfQ==","mediaType":"application/json"},{"raw":"AAEC","filename":"f.bin","mediaType":"application/octet-stream"},` +
	`{"url":"https://files.example/x","mediaType":"image/png","filename":"x.png"},{"data":[1,"two",null]},{"data":"text"},{"data":9007199254740993}]`

const sentOld = `"messageId":"ID","role":"user","kind":"message","extensions":["urn:example:one"],"metadata":{"id":9007199254740993},` +
	`"parts":[{"kind":"text","text":"plain","metadata":{"k":9007199254740993}},{"kind":"data","data":{"n":9007199254740993},"metadata":{"m":1}},` +
	`{"kind":"file","file":{"bytes":"eyJhIjoxfQ==","mimeType":"application/json"}},{"kind":"file","file":{"uri":"https://files.example/x","mimeType":"image/png","name":"x.png"}}]`

const sentOldREST = `"messageId":"ID","role":"ROLE_USER","extensions":["urn:example:one"],"metadata":{"id":9007199254740993},` +
	`"content":[{"text":"plain","metadata":{"k":9007199254740993}},{"data":{"data":{"n":9007199254740993}}},{"file":{"fileWithBytes":"eyJhIjoxfQ==","mimeType":"application/json"}}]`

// exactJSON decodes with the digits of numbers, for comparison.
func exactJSON(t *testing.T, document string) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	var value map[string]any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return value
}

// firstOfHistory digs the first message of the history out of an answer of any binding.
func firstOfHistory(t *testing.T, body string) map[string]any {
	t.Helper()
	document := exactJSON(t, body)
	for _, inner := range []string{"result", "task"} {
		if found, is := document[inner].(map[string]any); is {
			document = found
		}
	}
	history, _ := document["history"].([]any)
	if len(history) == 0 {
		t.Fatalf("no history in %s", body)
	}
	message, _ := history[0].(map[string]any)
	for _, ours := range []string{"taskId", "contextId"} {
		delete(message, ours)
	}
	return message
}

// TestHistoryIsWhatWasSent: metadata, extensions, the kind and name of each part and the digits of numbers come back as they were
// sent, by the same binding, in the answer and when the task is read later.
func TestHistoryIsWhatWasSent(t *testing.T) {
	b := setup(t)
	for name, c := range map[string]struct{ path, before, message, after, get string }{
		"1.0 JSON-RPC": {"/a2a/echo", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{`, sentOne, `}}}`, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"TASK"}}`},
		"1.0 REST":     {"/a2a/echo/rest/message:send", `{"message":{`, sentOne, `}}`, "/a2a/echo/rest/tasks/TASK"},
		"0.3 JSON-RPC": {"/a2a/echo", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{`, sentOld, `}}}`, `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"TASK"}}`},
		"0.3 REST":     {"/a2a/echo/v1/message:send", `{"message":{`, sentOldREST, `}}`, "/a2a/echo/v1/tasks/TASK"},
	} {
		message := strings.Replace(c.message, "ID", name, 1)
		want := exactJSON(t, "{"+message+"}")
		answer := b.do("POST", c.path, b.ada, c.before+message+c.after, "User-Agent", "node") // whose files are not in base64 twice
		task, _ := cmpID(t, answer.body)
		var read reply
		if strings.HasPrefix(c.get, "/") {
			read = b.do("GET", strings.Replace(c.get, "TASK", task, 1), b.ada, "", "User-Agent", "node")
		} else {
			read = b.do("POST", "/a2a/echo", b.ada, strings.Replace(c.get, "TASK", task, 1))
		}
		for when, body := range map[string]string{"answer": answer.body, "read": read.body} {
			if diff := cmp.Diff(want, firstOfHistory(t, body)); diff != "" {
				t.Errorf("%s, %s (-sent +history):\n%s", name, when, diff)
			}
		}
	}
}

func cmpID(t *testing.T, body string) (string, bool) {
	t.Helper()
	document := exactJSON(t, body)
	for _, inner := range []string{"result", "task"} {
		if found, is := document[inner].(map[string]any); is {
			document = found
		}
	}
	id, is := document["id"].(string)
	return id, is
}

// TestHistoryAcrossBindings: what came by one binding is read by the others in their terms.
func TestHistoryAcrossBindings(t *testing.T) {
	b := setup(t)
	client := b.dial()
	metadata, _ := structpb.NewStruct(map[string]any{"k": "v", "n": 5.0})
	sent, err := client.SendMessage(calling(b.ada), &pb.SendMessageRequest{Tenant: "echo", Message: &pb.Message{
		MessageId: "g1", Role: pb.Role_ROLE_USER, Extensions: []string{"urn:example:one"}, Metadata: metadata,
		Parts: []*pb.Part{
			{Content: &pb.Part_Data{Data: structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNumberValue(1)}})}, Filename: "named"},
			{Content: &pb.Part_Raw{Raw: []byte(`{"a":1}`)}, MediaType: "application/json", Metadata: metadata},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	task := sent.GetTask()
	first := task.GetHistory()[0]
	if len(first.GetExtensions()) != 1 || first.GetMetadata().GetFields()["k"].GetStringValue() != "v" || first.GetParts()[0].GetFilename() != "named" ||
		len(first.GetParts()[0].GetData().GetListValue().GetValues()) != 1 || string(first.GetParts()[1].GetRaw()) != `{"a":1}` || first.GetParts()[1].GetMetadata() == nil {
		t.Errorf("by gRPC: %v", first)
	}
	one := firstOfHistory(t, b.rpc(b.ada, "GetTask", `{"id":"`+task.GetId()+`"}`).body)
	want := exactJSON(t, `{"messageId":"g1","role":"ROLE_USER","extensions":["urn:example:one"],"metadata":{"k":"v","n":5},"parts":[{"data":[1],"filename":"named"},{"raw":"eyJhIjoxfQ==","mediaType":"application/json","metadata":{"k":"v","n":5}}]}`)
	if diff := cmp.Diff(want, one); diff != "" {
		t.Errorf("by JSON-RPC (-want +got):\n%s", diff)
	}
	old := firstOfHistory(t, b.rpc(b.ada, "tasks/get", `{"id":"`+task.GetId()+`"}`).body)
	want = exactJSON(t, `{"kind":"message","messageId":"g1","role":"user","extensions":["urn:example:one"],"metadata":{"k":"v","n":5},"parts":[{"kind":"data","data":{"value":[1]},"metadata":{"data_part_compat":true}},{"kind":"file","file":{"bytes":"eyJhIjoxfQ==","mimeType":"application/json"},"metadata":{"k":"v","n":5}}]}`)
	if diff := cmp.Diff(want, old); diff != "" {
		t.Errorf("by JSON-RPC of 0.3 (-want +got):\n%s", diff)
	}
	if _, err := client.GetTask(calling(b.ada), &pb.GetTaskRequest{Tenant: "echo", Id: b.rpc(b.ada, "SendMessage", `{"message":{"messageId":"g2","role":"ROLE_USER","parts":[{"data":{"n":12345678901234567890}}]}}`).text(t, "result.task.id")}); err != nil {
		t.Errorf("a large number by gRPC: %v", err)
	}
}

// TestSecretsStayOut: what is taken out of the metadata does not come back with its digits.
func TestSecretsStayOut(t *testing.T) {
	b := setup(t)
	r := b.rpc(b.ada, "SendMessage", withMetadata("m1", `{"mentionable":{"identity_evidence":[{"n":9007199254740993}],"other":9007199254740993},"x402.payment.payload":{"secret":9007199254740993},"n":9007199254740993}`))
	got, _ := firstOfHistory(t, r.body)["metadata"].(map[string]any)
	if diff := cmp.Diff(exactJSON(t, `{"mentionable":{"other":9007199254740993},"n":9007199254740993}`), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Contains(string(b.engine.last().Route), "secret") || strings.Contains(string(b.engine.last().Route), "identity_evidence") {
		t.Errorf("stored: %s", b.engine.last().Route)
	}
}

// TestDigitsOfArtifacts: structured results keep the digits of their numbers.
func TestDigitsOfArtifacts(t *testing.T) {
	b := setup(t)
	r := b.rpc(b.ada, "SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"n":9007199254740993}}]}}`)
	if !strings.Contains(r.body, `"artifacts":[{`) || strings.Count(r.body, "9007199254740993") != 2 {
		t.Errorf("echoed: %s", r.body)
	}
}
