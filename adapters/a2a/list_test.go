package a2a

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

func TestListPages(t *testing.T) {
	b := setup(t)
	compare(t, "list-empty.json", b.rpc(b.ada, "ListTasks", "{}").body)
	var sent []string
	for i := range 5 {
		sent = append(sent, b.rpc(b.ada, "SendMessage", message(fmt.Sprint("m", i), "hello")).text(t, "result.task.id"))
	}
	for _, filter := range []string{"", `"status":"TASK_STATE_COMPLETED",`} {
		var got []string
		token := ""
		for range 4 {
			r := b.rpc(b.ada, "ListTasks", `{`+filter+`"pageSize":2,"pageToken":"`+token+`"}`)
			if r.at(t, "result.totalSize") != 5.0 || r.at(t, "result.tasks.0.artifacts") != nil {
				t.Errorf("page %s", r.body)
			}
			for i := range int(r.at(t, "result.tasks.#").(float64)) {
				got = append(got, r.text(t, fmt.Sprintf("result.tasks.%d.id", i)))
			}
			if token = r.text(t, "result.nextPageToken"); token == "" {
				break
			}
		}
		if len(got) != 5 || got[0] != sent[4] || got[4] != sent[0] {
			t.Errorf("filter %q: listed %v of %v", filter, got, sent)
		}
	}
	with := b.rpc(b.ada, "ListTasks", `{"pageSize":1,"includeArtifacts":true,"historyLength":1}`)
	compare(t, "list.json", strings.Replace(with.body, with.text(t, "result.nextPageToken"), "TOKEN", 1))
	after := b.rpc(b.ada, "ListTasks", `{"statusTimestampAfter":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`)
	if after.at(t, "result.totalSize") != 0.0 {
		t.Errorf("after the future: %s", after.body)
	}
}

func TestListByState(t *testing.T) {
	b := setup(t)
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		switch text := r.turn.Message.Parts[0].Content; text {
		case "ask", "give up":
			return asking(ctx, r)
		case "fail":
			return normalized.Response{Status: normalized.StatusFailed}
		case "wait":
			<-ctx.Done()
		}
		return echo(ctx, r)
	}
	for i, text := range []string{"ask", "give up", "fail", "fine"} {
		task := b.rpc(b.ada, "SendMessage", message(fmt.Sprint("m", i), text)).text(t, "result.task.id")
		if text == "give up" {
			b.rpc(b.ada, "CancelTask", `{"id":"`+task+`"}`)
		}
	}
	b.rpc(b.ada, "SendMessage", `{"configuration":{"returnImmediately":true},`+message("m9", "wait")[1:])
	for state, want := range map[string]float64{
		"INPUT_REQUIRED": 1, "CANCELED": 1, "FAILED": 1, "COMPLETED": 1, "REJECTED": 0, "AUTH_REQUIRED": 0,
	} {
		r := b.rpc(b.ada, "ListTasks", `{"status":"TASK_STATE_`+state+`"}`)
		if r.at(t, "result.totalSize") != want || r.at(t, "result.tasks.#") != want {
			t.Errorf("%s: %s", state, r.body)
		}
	}
	if r := b.rpc(b.ada, "ListTasks", "{}"); r.at(t, "result.totalSize") != 5.0 {
		t.Errorf("all: %s", r.body)
	}
}

func TestCancel(t *testing.T) {
	b := setup(t)
	running, stopped := make(chan struct{}), make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		if r.turn.Message.Parts[0].Content == "buy" {
			return asking(ctx, r)
		}
		close(running)
		<-ctx.Done()
		close(stopped)
		return normalized.Response{}
	}
	task := b.rpc(b.ada, "SendMessage", `{"configuration":{"returnImmediately":true},`+message("m1", "x")[1:]).text(t, "result.task.id")
	await.Receive(t, running, "the agent to work")
	compare(t, "cancel.json", b.rpc(b.ada, "CancelTask", `{"id":"`+task+`"}`).body)
	await.Receive(t, stopped, "the end of the cancelled run")
	compare(t, "error-cancel.json", b.rpc(b.ada, "CancelTask", `{"id":"`+task+`"}`).body)

	asked := b.rpc(b.ada, "SendMessage", message("m2", "buy")).text(t, "result.task.id")
	for i, want := range []string{"TASK_STATE_CANCELED", ""} {
		if r := b.rpc(b.ada, "CancelTask", `{"id":"`+asked+`"}`); r.text(t, "result.status.state") != want {
			t.Errorf("cancel %d of a task that asks: %s", i, r.body)
		}
	}
	if r := b.rpc(b.ada, "GetTask", `{"id":"`+asked+`"}`); r.text(t, "result.status.state") != "TASK_STATE_CANCELED" {
		t.Errorf("read again: %s", r.body)
	}
	if r := b.rpc(b.ada, "SendMessage", follow("m3", asked, "")); r.at(t, "error.code") != -32004.0 {
		t.Errorf("message after the end: %s", r.body)
	}
}

func FuzzPageToken(f *testing.F) {
	f.Add("")
	f.Add(writePageToken(exchange.TurnCursor(exchange.TurnRecord{ID: newID(), UpdatedAt: time.Now()})))
	f.Add(base64.RawURLEncoding.EncodeToString([]byte("1.2")))
	f.Fuzz(func(t *testing.T, token string) {
		cursor, err := readPageToken(token)
		if err != nil || token == "" {
			return
		}
		at, id, _ := strings.Cut(cursor, ".")
		if len(id) != uuidLength || at == "" {
			t.Errorf("%q gave the cursor %q", token, cursor)
		}
	})
}

func FuzzContext(f *testing.F) {
	o := owner{agent: "echo", caller: "agents.test token:1"}
	f.Add("general")
	f.Add(o.names().MintName())
	f.Add(o.context("general", o.caller).ID())
	f.Add("")
	f.Fuzz(func(t *testing.T, contextID string) {
		other := owner{agent: "echo", caller: "agents.test token:2"}
		threads := map[string]bool{}
		for _, name := range []exchange.ConversationName{
			o.context(contextID, o.caller), o.context(contextID, "ann"), o.context(contextID, other.caller),
			other.context(contextID, other.caller), other.context(contextID, "ann"), other.context(contextID, o.caller),
		} {
			threads[name.ID()] = true
		}
		if len(threads) != 6 {
			t.Errorf("two speakers share a conversation of the name %q", contextID)
		}
	})
}

// TestForeignTasksAreMissing asks with every operation for a task that is another owner's, for a task of the same
// principal with another agent, and for one that does not exist: the answers must be the same bytes.
func TestForeignTasksAreMissing(t *testing.T) {
	b := setup(t)
	b.engine.agent = asking
	interrupted := b.rpc(b.ada, "SendMessage", message("m1", "buy"))
	task, contextID := interrupted.text(t, "result.task.id"), interrupted.text(t, "result.task.contextId")
	ended := b.rpc(b.ada, "SendMessage", follow("m2", task, "")).text(t, "result.task.id")
	open := b.rpc(b.ada, "SendMessage", message("m3", "buy")).text(t, "result.task.id")
	missing := newID()
	missingContext := missing + strings.Repeat("0", tagLength+1)
	missingContext = missing + "." + missingContext[:tagLength]

	ask := func(agent, token, method, params string) reply {
		return b.do("POST", "/a2a/"+agent, token, call10(method, params))
	}
	for _, c := range []struct{ method, params, context string }{
		{"GetTask", `{"id":"%s"}`, ""},
		{"CancelTask", `{"id":"%s"}`, ""},
		{"SubscribeToTask", `{"id":"%s"}`, ""},
		{"SendMessage", `{"message":{"messageId":"x","role":"ROLE_USER","taskId":"%s","parts":[{"text":"x"}]}}`, ""},
		{"SendStreamingMessage", `{"message":{"messageId":"x","role":"ROLE_USER","taskId":"%s","parts":[{"text":"x"}]}}`, ""},
		{"SendMessage", `{"message":{"messageId":"x","role":"ROLE_USER","referenceTaskIds":["%s"],"parts":[{"text":"x"}]}}`, ""},
		{"SendMessage", `{"message":{"messageId":"x","role":"ROLE_USER","contextId":"%s","parts":[{"text":"x"}]}}`, contextID},
		{"SendStreamingMessage", `{"message":{"messageId":"x","role":"ROLE_USER","contextId":"%s","parts":[{"text":"x"}]}}`, contextID},
		{"ListTasks", `{"contextId":"%s"}`, contextID},
		{"GetTaskPushNotificationConfig", `{"taskId":"%s","id":"x"}`, ""},
		{"ListTaskPushNotificationConfigs", `{"taskId":"%s"}`, ""},
		{"CreateTaskPushNotificationConfig", `{"taskId":"%s","url":"https://x.test"}`, ""},
		{"DeleteTaskPushNotificationConfig", `{"taskId":"%s","id":"x"}`, ""},
		{"tasks/get", `{"id":"%s"}`, ""},
		{"tasks/cancel", `{"id":"%s"}`, ""},
		{"tasks/resubscribe", `{"id":"%s"}`, ""},
		{"message/send", `{"message":{"kind":"message","messageId":"x","role":"user","taskId":"%s","parts":[{"kind":"text","text":"x"}]}}`, ""},
		{"message/stream", `{"message":{"kind":"message","messageId":"x","role":"user","taskId":"%s","parts":[{"kind":"text","text":"x"}]}}`, ""},
		{"tasks/pushNotificationConfig/list", `{"id":"%s"}`, ""},
	} {
		targets, absent := []string{ended, open}, missing
		if c.context != "" {
			targets, absent = []string{c.context}, missingContext
		}
		for _, target := range targets {
			want := ask("echo", b.bob, c.method, fmt.Sprintf(c.params, absent))
			for who, got := range map[string]reply{
				"another principal": ask("echo", b.bob, c.method, fmt.Sprintf(c.params, target)),
				"another agent":     ask("other", b.ada, c.method, fmt.Sprintf(c.params, target)),
			} {
				if diff := cmp.Diff(want.body, got.body); diff != "" || got.status != want.status {
					t.Errorf("%s of %s (-missing +foreign):\n%s", c.method, who, diff)
				}
				if strings.Contains(got.body, `"result"`) && c.method != "ListTasks" {
					t.Errorf("%s of %s: %s", c.method, who, got.body)
				}
			}
		}
	}
	for _, path := range []string{"/rest/tasks/", "/v1/tasks/"} {
		want, got := b.do("GET", "/a2a/echo"+path+missing, b.bob, ""), b.do("GET", "/a2a/echo"+path+ended, b.bob, "")
		if want.status != 404 || got.status != 404 || want.body != got.body {
			t.Errorf("%s: %d %s, missing: %d %s", path, got.status, got.body, want.status, want.body)
		}
	}
	if listed := b.rpc(b.bob, "ListTasks", "{}"); listed.at(t, "result.totalSize") != 0.0 {
		t.Errorf("bob sees %s", listed.body)
	}
	if b.engine.receives != 3 {
		t.Errorf("%d turns, want the owner's 3", b.engine.receives)
	}
}

func TestTheSameContextNameOfTwoPrincipalsIsTwoThreads(t *testing.T) {
	b := setup(t)
	send := `{"message":{"messageId":"m","role":"ROLE_USER","contextId":"general","parts":[{"text":"x"}]}}`
	for _, token := range []string{b.ada, b.bob} {
		if got := b.rpc(token, "SendMessage", send).text(t, "result.task.contextId"); got != "general" {
			t.Errorf("context %q", got)
		}
	}
	threads := map[string]bool{}
	for _, turn := range b.engine.turns {
		threads[turn.ThreadID] = true
	}
	if len(threads) != 2 {
		t.Errorf("threads %v", threads)
	}
	minted := b.rpc(b.ada, "SendMessage", message("m2", "x")).text(t, "result.task.contextId")
	again := `{"message":{"messageId":"m3","role":"ROLE_USER","contextId":"` + minted + `","parts":[{"text":"x"}]}}`
	if got := b.rpc(b.ada, "SendMessage", again).text(t, "result.task.contextId"); got != minted {
		t.Errorf("own minted context became %q", got)
	}
	if got := b.rpc(b.ada, "ListTasks", `{"contextId":"`+minted+`"}`); got.at(t, "result.totalSize") != 2.0 {
		t.Errorf("tasks of the context: %s", got.body)
	}
}
