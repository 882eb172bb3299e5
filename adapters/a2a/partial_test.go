package a2a

import (
	"context"
	"strings"
	"testing"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"

	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// working starts a task whose agent says text, after a first run that was lost, and waits for release or its cancellation.
func (b *bundle) working(id string, release <-chan struct{}, end normalized.Response) (task string) {
	b.Helper()
	said := make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		r.say("lost ")
		r.restart()
		r.say("one ")
		r.say("two ")
		close(said)
		hold(ctx, release)
		return end
	}
	task = b.rpc(b.ada, "SendMessage", `{"configuration":{"returnImmediately":true},`+message(id, "x")[1:]).text(b.T, "result.task.id")
	await.Receive(b, said, "the agent to say its words")
	return task
}

// seen is the text of the only artifact of a task by each way to read it.
func (b *bundle) seen(grpc pb.A2AServiceClient, task string) map[string]string {
	b.Helper()
	byGRPC, err := grpc.GetTask(calling(b.ada), &pb.GetTaskRequest{Tenant: "echo", Id: task})
	if err != nil {
		b.Fatal(err)
	}
	texts := map[string]string{"gRPC": ""}
	for _, artifact := range byGRPC.GetArtifacts() {
		for _, part := range artifact.GetParts() {
			texts["gRPC"] += part.GetText()
		}
	}
	texts["JSON-RPC"] = b.rpc(b.ada, "GetTask", `{"id":"`+task+`"}`).text(b.T, "result.artifacts.0.parts.0.text")
	texts["JSON-RPC 0.3"] = b.rpc(b.ada, "tasks/get", `{"id":"`+task+`"}`).text(b.T, "result.artifacts.0.parts.0.text")
	texts["REST"] = b.do("GET", "/a2a/echo/rest/tasks/"+task, b.ada, "").text(b.T, "artifacts.0.parts.0.text")
	texts["REST 0.3"] = b.do("GET", "/a2a/echo/v1/tasks/"+task, b.ada, "").text(b.T, "artifacts.0.parts.0.text")
	texts["list"] = b.rpc(b.ada, "ListTasks", `{"includeArtifacts":true,"pageSize":1}`).text(b.T, "result.tasks.0.artifacts.0.parts.0.text")
	return texts
}

func (b *bundle) wantSeen(when, task, want string, grpc pb.A2AServiceClient) {
	b.Helper()
	for way, text := range b.seen(grpc, task) {
		if text != want {
			b.Errorf("%s, by %s: %q, want %q", when, way, text, want)
		}
	}
}

// TestPollersSeeWhatSubscribersSee: a task that works shows what its stream has delivered, without what a lost run said, and
// keeps it when it is cancelled or fails (A2A 1.0, section 3.1.3).
func TestPollersSeeWhatSubscribersSee(t *testing.T) {
	b := setup(t)
	client := b.dial()
	task := b.working("m1", nil, normalized.Response{})
	b.wantSeen("while it works", task, "one two ", client)
	if r := b.rpc(b.ada, "ListTasks", "{}"); r.at(t, "result.tasks.0.artifacts") != nil {
		t.Errorf("listed without being asked: %s", r.body)
	}
	next, stop := b.open(b.ada, "/a2a/echo", call10("SubscribeToTask", `{"id":"`+task+`"}`))
	frame, _ := next()
	if frame.text(t, "result.task.artifacts.0.parts.0.text") != "one two " {
		t.Errorf("the first event of a subscription: %s", frame.body)
	}
	stop()
	if r := b.rpc(b.ada, "CancelTask", `{"id":"`+task+`"}`); r.text(t, "result.artifacts.0.parts.0.text") != "one two " {
		t.Errorf("cancelled: %s", r.body)
	}
	b.wantSeen("after it was cancelled", task, "one two ", client)

	release := make(chan struct{})
	close(release)
	failing := b.working("m2", release, normalized.Response{Status: normalized.StatusFailed})
	b.ended()
	b.wantSeen("after it failed", failing, "one two ", client)

	whole := b.working("m3", release, normalized.Response{Parts: []normalized.Part{normalized.Text("one two three")}})
	b.ended()
	b.wantSeen("after it was answered", whole, "one two three", client)
}

// TestSubscriptionGoesOnBehindItsSnapshot: a subscriber that comes late has the text once, from snapshot and updates.
func TestSubscriptionGoesOnBehindItsSnapshot(t *testing.T) {
	b := setup(t)
	release := make(chan struct{})
	task := b.working("m1", release, normalized.Response{Parts: []normalized.Part{normalized.Text("one two three")}})
	next, _ := b.open(b.ada, "/a2a/echo", call10("SubscribeToTask", `{"id":"`+task+`"}`))
	first, _ := next()
	close(release)
	frames := []reply{first}
	for frame, more := next(); more; frame, more = next() {
		frames = append(frames, frame)
	}
	if text, state := folded(t, frames); text != "one two three" || state != "TASK_STATE_COMPLETED" {
		t.Errorf("folded %q, %s", text, state)
	}
	if added := frames[1]; added.at(t, "result.artifactUpdate.append") == nil || added.text(t, "result.artifactUpdate.artifact.parts.0.text") != "three" {
		t.Errorf("behind the snapshot: %s", added.body)
	}
}

// TestWebhookOfACancelledTask: a webhook hears what the task had said, in both versions.
func TestWebhookOfACancelledTask(t *testing.T) {
	b, table, hook := pushing(t)
	task := b.working("m1", nil, normalized.Response{})
	b.rpc(b.ada, "CreateTaskPushNotificationConfig", `{"taskId":"`+task+`","id":"new","url":"`+hook.URL+`"}`)
	b.rpc(b.ada, "tasks/pushNotificationConfig/set", `{"taskId":"`+task+`","pushNotificationConfig":{"id":"old","url":"`+hook.URL+`"}}`)
	b.rpc(b.ada, "CancelTask", `{"id":"`+task+`"}`)
	for _, watch := range table.rows {
		hook.bodies = nil
		change := exchange.WatchJob{WatchID: watch.ID, TurnID: b.engine.newestTurn(), State: exchange.StateCancelled}
		if err := b.adapter.notifier.Notify(t.Context(), change, false); err != nil {
			t.Fatal(err)
		}
		if told := strings.Join(hook.bodies, "\n"); !strings.Contains(told, `"one two "`) || strings.Contains(told, "lost") {
			t.Errorf("%s was told %s", watch.Name, told)
		}
	}
}

// TestLastChunkOf03: clients that read the .proto form of 0.3 may forget append, so that the last event has the whole text.
func TestLastChunkOf03(t *testing.T) {
	b := setup(t)
	for name, whole := range map[string]string{"all was streamed": "one two ", "a rest": "one two three", "long": strings.Repeat("word ", maxChunk)} {
		b.engine.agent = func(_ context.Context, r *run) normalized.Response {
			r.say(whole[:8])
			return normalized.Response{Parts: []normalized.Part{normalized.Text(whole)}}
		}
		frames := b.do("POST", "/a2a/echo/v1/message:stream", b.ada,
			`{"message":{"messageId":"`+name+`","role":"ROLE_USER","content":[{"text":"x"}]}}`).frames()
		last := reply{}
		for _, frame := range frames {
			if frame.at(t, "artifactUpdate") != nil {
				last = frame
			}
		}
		if last.at(t, "artifactUpdate.lastChunk") == nil || last.at(t, "artifactUpdate.append") != nil ||
			last.text(t, "artifactUpdate.artifact.parts.0.text") != whole {
			t.Errorf("%s: the last chunk is %.200s", name, last.body)
		}
	}
}
