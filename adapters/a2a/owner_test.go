package a2a

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
