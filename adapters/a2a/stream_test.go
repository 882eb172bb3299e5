package a2a

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/httpserver"
	"inbox/internal/httpserver/httpservertest"
	"inbox/normalized"
)

// open starts a stream and returns a function that reads its next data line; ok is false at the end.
func (b *bundle) open(token, path, body string) (next func() (frame reply, ok bool), stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := b.client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		b.Fatalf("Content-Type %q", got)
	}
	lines := bufio.NewScanner(res.Body)
	next = func() (reply, bool) {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return reply{body: data}, true
			}
		}
		return reply{}, false
	}
	stop = func() {
		cancel()
		_ = res.Body.Close()
	}
	b.Cleanup(stop)
	return next, stop
}

func call10(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
}

// growing streams two pieces of text and ends with a third that is in the answer alone.
func growing(_ context.Context, r *run) normalized.Response {
	r.say("one ")
	r.say("two ")
	return normalized.Response{Parts: []normalized.Part{normalized.Text("one two three")}}
}

func TestStream(t *testing.T) {
	b := setup(t)
	b.engine.agent = growing
	compare(t, "stream.txt", b.rpc(b.ada, "SendStreamingMessage", message("m1", "hello")).body)
	compare(t, "stream-0.3.txt", b.rpc(b.ada, "message/stream",
		`{"message":{"kind":"message","messageId":"m2","role":"user","parts":[{"kind":"text","text":"hello"}]}}`).body)
	compare(t, "stream-rest.txt", b.do("POST", "/a2a/echo/rest/message:stream", b.ada, message("m3", "hello")).body)

	again := b.rpc(b.ada, "SendStreamingMessage", message("m1", "hello")).frames()
	if len(again) != 1 || again[0].text(t, "result.task.artifacts.0.parts.0.text") != "one two three" {
		t.Errorf("a repeated message streams %v", again)
	}
}

// TestTalkIsAMessage: an answer that its agent calls talk is the same message by every operation: alone, or as the last words of its task.
func TestTalkIsAMessage(t *testing.T) {
	b, table, hook := pushing(t)
	b.engine.agent = func(context.Context, *run) normalized.Response {
		return normalized.Response{Parts: []normalized.Part{normalized.Text("hello yourself")}, Metadata: map[string]string{normalized.MetadataTalk: "true"}}
	}
	const words = "hello yourself"
	sent := b.rpc(b.ada, "SendMessage", message("m1", "hello"))
	if sent.text(t, "result.message.parts.0.text") != words || sent.at(t, "result.task") != nil {
		t.Errorf("SendMessage: %s", sent.body)
	}
	frames := b.rpc(b.ada, "SendStreamingMessage", message("m2", "hello")).frames()
	last := frames[len(frames)-1]
	if frames[0].at(t, "result.task") == nil || last.text(t, "result.statusUpdate.status.state") != "TASK_STATE_COMPLETED" ||
		last.text(t, "result.statusUpdate.status.message.parts.0.text") != words || last.text(t, "result.statusUpdate.status.message.role") != "ROLE_AGENT" {
		t.Errorf("SendStreamingMessage: %v", frames)
	}
	for _, frame := range frames {
		if frame.at(t, "result.artifactUpdate") != nil || frame.at(t, "result.task.artifacts") != nil {
			t.Errorf("talk is streamed as a result: %s", frame.body)
		}
	}
	task, id := last.text(t, "result.statusUpdate.taskId"), last.text(t, "result.statusUpdate.status.message.messageId")
	again := b.rpc(b.ada, "SendMessage", message("m2", "hello")) // a repeat, by the other operation
	if again.text(t, "result.message.messageId") != id || again.text(t, "result.message.parts.0.text") != words {
		t.Errorf("the same message by SendMessage: %s, want the message %s", again.body, id)
	}
	read := b.rpc(b.ada, "GetTask", `{"id":"`+task+`"}`)
	if read.text(t, "result.status.message.messageId") != id || read.at(t, "result.artifacts") != nil {
		t.Errorf("GetTask: %s", read.body)
	}
	old := b.rpc(b.ada, "message/send", `{"message":{"kind":"message","messageId":"m2","role":"user","parts":[{"kind":"text","text":"hello"}]}}`)
	if old.text(t, "result.kind") != "message" || old.text(t, "result.messageId") != id {
		t.Errorf("0.3: %s", old.body)
	}

	b.rpc(b.ada, "SendMessage", `{"message":`+hello("m3")+`,"configuration":{"taskPushNotificationConfig":{"url":"`+hook.URL+`/h"}}}`)
	change := exchange.WatchJob{WatchID: table.rows[0].ID, TurnID: b.engine.newestTurn(), State: exchange.StateAnswered, At: time.Now()}
	if err := b.adapter.notifier.Notify(t.Context(), change, false); err != nil {
		t.Error(err)
	}
	if len(hook.bodies) != 1 || (reply{body: hook.bodies[0]}).text(t, "statusUpdate.status.message.parts.0.text") != words {
		t.Errorf("the webhook is told %v", hook.bodies)
	}
}

// TestTalkThatGrew: words that a reader has as an artifact already end as one, and do not come again as a message.
func TestTalkThatGrew(t *testing.T) {
	b := setup(t)
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		answer := growing(ctx, r)
		answer.Metadata = map[string]string{normalized.MetadataTalk: "true"}
		return answer
	}
	frames := b.rpc(b.ada, "SendStreamingMessage", message("m1", "hello")).frames()
	last := frames[len(frames)-1]
	if text, state := folded(t, frames); text != "one two three" || state != "TASK_STATE_COMPLETED" || last.at(t, "result.statusUpdate.status.message") != nil {
		t.Errorf("%q, %s: %v", text, state, frames)
	}
}

func TestStreamsWithoutDeltas(t *testing.T) {
	b := setup(t)
	frames := b.rpc(b.ada, "SendStreamingMessage", message("m1", "hello")).frames()
	var kinds []string
	for _, f := range frames {
		switch {
		case f.at(t, "result.task") != nil:
			kinds = append(kinds, f.text(t, "result.task.status.state"))
		case f.at(t, "result.artifactUpdate") != nil:
			kinds = append(kinds, "artifact "+f.text(t, "result.artifactUpdate.artifact.parts.0.text"))
			if last, _ := f.at(t, "result.artifactUpdate.lastChunk").(bool); !last || f.at(t, "result.artifactUpdate.append") != nil {
				t.Errorf("artifact %s", f.body)
			}
		default:
			kinds = append(kinds, f.text(t, "result.statusUpdate.status.state"))
		}
	}
	want := "TASK_STATE_SUBMITTED TASK_STATE_WORKING artifact hello TASK_STATE_COMPLETED"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("frames %q, want %q", got, want)
	}
}

// folded is what a client has after a stream: artifacts by id with the texts joined, and the last state.
func folded(t *testing.T, frames []reply) (text, state string) {
	t.Helper()
	for _, f := range frames {
		var frame struct {
			Result struct {
				Task *struct {
					Status    struct{ State string }
					Artifacts []struct{ Parts []struct{ Text string } }
				}
				StatusUpdate struct {
					Status struct{ State string }
				}
				ArtifactUpdate *struct {
					Append   bool
					Artifact struct{ Parts []struct{ Text string } }
				}
			}
		}
		if err := json.Unmarshal([]byte(f.body), &frame); err != nil {
			t.Fatal(err)
		}
		if update := frame.Result.ArtifactUpdate; update != nil {
			if !update.Append {
				text = ""
			}
			for _, part := range update.Artifact.Parts {
				text += part.Text
			}
		}
		if snapshot := frame.Result.Task; snapshot != nil {
			text, state = "", snapshot.Status.State
			for _, artifact := range snapshot.Artifacts {
				for _, part := range artifact.Parts {
					text += part.Text
				}
			}
		}
		if frame.Result.StatusUpdate.Status.State != "" {
			state = frame.Result.StatusUpdate.Status.State
		}
	}
	return text, state
}

func TestStreamFoldsToTheAnswer(t *testing.T) {
	markdown := normalized.Markdown("begun by a part")
	for name, c := range map[string]struct {
		agent func(context.Context, *run) normalized.Response
		want  string
	}{
		"growing": {growing, "one two three"},
		"restarted": {func(_ context.Context, r *run) normalized.Response {
			r.say("half a")
			r.restart()
			r.say("whole ")
			return normalized.Response{Parts: []normalized.Part{normalized.Text("whole answer")}}
		}, "whole answer"},
		"all was streamed": {func(_ context.Context, r *run) normalized.Response {
			r.say("all")
			return normalized.Response{Parts: []normalized.Part{normalized.Text("all")}}
		}, "all"},
		"another answer": {func(_ context.Context, r *run) normalized.Response {
			r.say("draft")
			return normalized.Response{Parts: []normalized.Part{normalized.Text("final")}}
		}, "final"},
		"two parts": {func(_ context.Context, r *run) normalized.Response {
			r.say("a")
			return normalized.Response{Parts: []normalized.Part{normalized.Text("a"), normalized.Text("b")}}
		}, "ab"},
		"part": {func(_ context.Context, r *run) normalized.Response {
			r.delta(normalized.Delta{Kind: normalized.DeltaPartBegin, Part: &markdown})
			r.delta(normalized.Delta{Kind: normalized.DeltaPartEnd})
			return normalized.Response{Parts: []normalized.Part{markdown}}
		}, "begun by a part"},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.engine.agent = c.agent
			text, state := folded(t, b.rpc(b.ada, "SendStreamingMessage", message("m1", "hello")).frames())
			if text != c.want || state != "TASK_STATE_COMPLETED" {
				t.Errorf("%q %s, want %q", text, state, c.want)
			}
		})
	}
}

func TestSubscribersGetTheSameEvents(t *testing.T) {
	b := setup(t)
	begun, release := make(chan struct{}), make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		r.say("one ")
		close(begun)
		hold(ctx, release)
		r.say("two ")
		return normalized.Response{Parts: []normalized.Part{normalized.Text("one two ")}}
	}
	task := b.rpc(b.ada, "SendMessage", `{"configuration":{"returnImmediately":true},`+message("m1", "hello")[1:]).text(t, "result.task.id")
	await.Receive(t, begun, "the agent to be asked")
	subscribe := call10("SubscribeToTask", `{"id":"`+task+`"}`)
	gone, stop := b.open(b.ada, "/a2a/echo", subscribe)
	if _, ok := gone(); !ok {
		t.Fatal("no snapshot")
	}
	stop() // closing one touches neither the others nor the task

	var streams [3][]reply
	var ready, group sync.WaitGroup
	for i := range streams {
		next, _ := b.open(b.ada, "/a2a/echo", subscribe)
		ready.Add(1)
		group.Go(func() {
			frame, ok := next()
			ready.Done()
			for ; ok; frame, ok = next() {
				streams[i] = append(streams[i], frame)
			}
		})
	}
	ready.Wait()
	close(release)
	group.Wait()
	for i, frames := range streams {
		if frames[0].at(t, "result.task.id") != task {
			t.Errorf("stream %d begins with %s", i, frames[0].body)
		}
		if text, state := folded(t, frames); text != "one two " || state != "TASK_STATE_COMPLETED" {
			t.Errorf("stream %d: %q %s", i, text, state)
		}
		if len(frames) != len(streams[0]) {
			t.Errorf("stream %d has %d events, the first %d", i, len(frames), len(streams[0]))
		}
	}
	ended := b.rpc(b.ada, "SubscribeToTask", `{"id":"`+task+`"}`)
	if got := ended.decode(t); got.Error == nil || got.Error.Code != -32004 {
		t.Errorf("subscribe to an ended task: %s", ended.body)
	}
}

func TestSubscribeOverAQuestion(t *testing.T) {
	b := setup(t)
	b.engine.agent = asking
	task := b.rpc(b.ada, "SendMessage", message("m1", "buy")).text(t, "result.task.id")
	next, _ := b.open(b.ada, "/a2a/echo", call10("SubscribeToTask", `{"id":"`+task+`"}`))
	first, _ := next()
	if got := first.text(t, "result.task.status.state"); got != "TASK_STATE_INPUT_REQUIRED" {
		t.Fatalf("snapshot %s", first.body)
	}
	b.rpc(b.ada, "SendMessage", follow("m2", task, ""))
	frames := []reply{}
	for frame, ok := next(); ok; frame, ok = next() {
		frames = append(frames, frame)
	}
	if text, state := folded(t, frames); text != "this one" || state != "TASK_STATE_COMPLETED" {
		t.Errorf("%q %s", text, state)
	}

	task = b.rpc(b.ada, "SendMessage", message("m3", "buy")).text(t, "result.task.id")
	next, _ = b.open(b.ada, "/a2a/echo", call10("SubscribeToTask", `{"id":"`+task+`"}`))
	next()
	b.rpc(b.ada, "CancelTask", `{"id":"`+task+`"}`)
	if last, _ := next(); last.text(t, "result.statusUpdate.status.state") != "TASK_STATE_CANCELED" {
		t.Errorf("after the cancellation %s", last.body)
	}
	if more, ok := next(); ok {
		t.Errorf("more after the end: %s", more.body)
	}
}

func TestStreamEndsWithAQuestion(t *testing.T) {
	b := setup(t)
	b.engine.agent = asking
	frames := b.rpc(b.ada, "SendStreamingMessage", message("m1", "buy")).frames()
	last := frames[len(frames)-1]
	if last.text(t, "result.statusUpdate.status.message.parts.0.text") != "which one?" {
		t.Errorf("last event %s", last.body)
	}
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		r.park(exchange.StateWaiting, "payment", nil)
		<-ctx.Done()
		return normalized.Response{}
	}
	frames = b.rpc(b.ada, "SendStreamingMessage", message("m2", "buy")).frames()
	if _, state := folded(t, frames); state != "TASK_STATE_INPUT_REQUIRED" {
		t.Errorf("parked: %s", state)
	}
}

func TestStreamGoesOnAfterAConsent(t *testing.T) {
	b := setup(t)
	given := make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		r.park(exchange.StateWaiting, "consent", nil)
		hold(ctx, given)
		r.park(exchange.StateRunning, "", nil)
		return normalized.Response{Parts: []normalized.Part{normalized.Text("done")}}
	}
	next, _ := b.open(b.ada, "/a2a/echo", call10("SendStreamingMessage", message("m1", "hello")))
	var frames []reply
	for frame, ok := next(); ok; frame, ok = next() {
		frames = append(frames, frame)
		if frame.text(t, "result.statusUpdate.status.state") == "TASK_STATE_AUTH_REQUIRED" {
			close(given)
		}
	}
	if text, state := folded(t, frames); text != "done" || state != "TASK_STATE_COMPLETED" {
		t.Errorf("%q %s", text, state)
	}
}

func TestAReaderThatNeverReadsHoldsUpNobody(t *testing.T) {
	b := setup(t, func(o *Options) { o.WriteTimeout = 3 * time.Second }) // long enough for the first event, which is read
	chunk := strings.Repeat("x", 1<<20)
	written := make(chan struct{})
	b.engine.agent = func(_ context.Context, r *run) normalized.Response {
		for range 32 { // more than the sockets' buffers take
			r.say(chunk)
		}
		close(written)
		return normalized.Response{Parts: []normalized.Part{normalized.Text("done")}}
	}
	next, _ := b.open(b.ada, "/a2a/echo", call10("SendStreamingMessage", message("m1", "hello")))
	first, _ := next()
	await.Receive(t, written, "the agent to have said everything")
	r := b.rpc(b.ada, "SendMessage", message("m1", "hello")) // waits for the same turn
	if r.text(t, "result.task.status.state") != "TASK_STATE_COMPLETED" || r.text(t, "result.task.id") != first.text(t, "result.task.id") {
		t.Errorf("the run was held up: %.200s", r.body)
	}
}

func TestQuietStreamsAreKeptAlive(t *testing.T) {
	b := setup(t, func(o *Options) { o.KeepAlive = 5 * time.Millisecond })
	release := make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		hold(ctx, release)
		return echo(ctx, r)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/a2a/echo", strings.NewReader(call10("SendStreamingMessage", message("m1", "hello"))))
	req.Header.Set("Authorization", "Bearer "+b.ada)
	res, err := b.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var stream strings.Builder
	lines := bufio.NewScanner(res.Body)
	for quiet := true; lines.Scan(); {
		stream.WriteString(lines.Text() + "\n")
		if quiet && strings.HasPrefix(lines.Text(), ":") {
			quiet = false
			close(release)
		}
	}
	if !strings.Contains(stream.String(), "\n"+httpserver.EventComment) {
		t.Errorf("no comment line after the first event of\n%s", &stream)
	}
	httpservertest.Check(t, stream.String(), len(httpservertest.Standard(stream.String())))
}

func TestStoppingServerLetsReadersGo(t *testing.T) {
	b := setup(t)
	running := make(chan struct{}, 2)
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		running <- struct{}{}
		<-ctx.Done()
		return normalized.Response{}
	}
	server, err := httpserver.New(httpserver.Options{Listen: "127.0.0.1:0", Routes: b.adapter.Routes(), WithoutHealth: true, Logger: b.adapter.log})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	b.url = "http://" + server.Addr().String()
	next, _ := b.open(b.ada, "/a2a/echo", call10("SendStreamingMessage", message("m1", "hello")))
	sent := make(chan reply, 1)
	go func() { sent <- b.rpc(b.ada, "SendMessage", message("m2", "hello")) }()
	for range 2 {
		await.Receive(t, running, "the agent to work on both messages")
	}
	stop()
	for _, ok := next(); ok; _, ok = next() {
		continue
	}
	if r := await.Receive(t, sent, "the answer of the blocking send"); r.text(t, "result.task.status.state") != "TASK_STATE_WORKING" {
		t.Errorf("blocking send: %s", r.body)
	}
	if err := await.Receive(t, done, "the end of the server"); err != nil {
		t.Error(err)
	}
}

// TestCutText: pieces are bounded, whole characters, and joined they are the text.
func TestCutText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.SampledFrom([]string{"a", "é", "€", "🙂", "\xff"}).Draw(t, "character"), rapid.IntRange(0, 3*maxChunk).Draw(t, "count"))
		text = rapid.StringN(0, 3, -1).Draw(t, "head") + text
		joined := ""
		for piece, rest := cutText(text); ; piece, rest = cutText(rest) {
			if len(piece) > maxChunk || utf8.ValidString(text) && !utf8.ValidString(piece) || piece == "" && rest != "" {
				t.Fatalf("a piece of %d bytes", len(piece))
			}
			if joined += piece; rest == "" {
				break
			}
		}
		if joined != text {
			t.Fatal("the pieces are not the text")
		}
	})
}

func TestStreamedKnowsItsText(t *testing.T) {
	var s streamed
	for _, piece := range []string{"one ", "two "} {
		s.add(piece)
	}
	for text, want := range map[string]string{"one two ": "", "one two three": "three", "one two": "-", "one too three": "-", "": "-"} {
		rest, ok := s.cut(text)
		if !ok {
			rest = "-"
		}
		if rest != want {
			t.Errorf("%q: %q, want %q", text, rest, want)
		}
	}
	s.reset()
	if rest, ok := s.cut("all"); rest != "all" || !ok {
		t.Errorf("after a reset: %q, %v", rest, ok)
	}
}

// TestLongTextsGoInPieces: a slow reader holds up one piece and not the whole answer.
func TestLongTextsGoInPieces(t *testing.T) {
	long := strings.Repeat("é", 3*maxChunk)
	for name, streams := range map[string]bool{"streamed": true, "at once": false} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.engine.agent = func(_ context.Context, r *run) normalized.Response {
				if streams {
					r.say(long[:4*maxChunk])
				}
				return normalized.Response{Parts: []normalized.Part{normalized.Text(long)}}
			}
			frames := b.rpc(b.ada, "SendStreamingMessage", message("m1", "hello")).frames()
			if text, state := folded(t, frames); text != long || state != "TASK_STATE_COMPLETED" {
				t.Errorf("%d bytes, %s; want %d", len(text), state, len(long))
			}
			for _, frame := range frames {
				if len(frame.body) > 2*maxChunk {
					t.Errorf("an event of %d bytes", len(frame.body))
				}
			}
		})
	}
}

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
