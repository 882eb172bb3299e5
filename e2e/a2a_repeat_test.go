package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
)

// a2aWays sends one message by each binding and returns the task's id, or the refusal.
type a2aWays struct {
	*server
	grpc        pb.A2AServiceClient
	grpcAddress string
}

func (w *a2aWays) post(path, token, body string) (int, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.URL()+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Error(err)
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Error(err)
	}
	return response.StatusCode, string(answer)
}

// taskIn finds the task of an answer, at the top or below result; refusals are given as they are.
func taskIn(answer string) (task, refusal string) {
	var body struct {
		Task   *struct{ ID string }
		Result *struct {
			ID   string
			Task *struct{ ID string }
		}
	}
	switch err := json.Unmarshal([]byte(answer), &body); {
	case err != nil:
	case body.Task != nil:
		return body.Task.ID, ""
	case body.Result != nil && body.Result.Task != nil:
		return body.Result.Task.ID, ""
	case body.Result != nil && body.Result.ID != "":
		return body.Result.ID, ""
	}
	return "", answer
}

// ways are the bindings: the function sends a message with an id, a context (may be empty) and a text.
func (w *a2aWays) ways() map[string]func(token, id, inContext, text string) (task, refusal string) {
	v1 := func(id, inContext, text string) string {
		return fmt.Sprintf(`{"message":{"messageId":%q,"contextId":%q,"role":"ROLE_USER","parts":[{"text":%q}]}}`, id, inContext, text)
	}
	v03 := func(id, inContext, text string) string {
		return fmt.Sprintf(`{"message":{"kind":"message","messageId":%q,"contextId":%q,"role":"user","parts":[{"kind":"text","text":%q}]}}`, id, inContext, text)
	}
	rpc := func(method string, params func(id, inContext, text string) string) func(token, id, inContext, text string) (string, string) {
		return func(token, id, inContext, text string) (string, string) {
			_, answer := w.post("/a2a/memory", token, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params(id, inContext, text)+`}`)
			return taskIn(answer)
		}
	}
	return map[string]func(token, id, inContext, text string) (string, string){
		"JSON-RPC": rpc("SendMessage", v1), "JSON-RPC 0.3": rpc("message/send", v03),
		"HTTP+JSON": func(token, id, inContext, text string) (string, string) {
			_, answer := w.post("/a2a/memory/rest/message:send", token, v1(id, inContext, text))
			return taskIn(answer)
		},
		"gRPC": func(token, id, inContext, text string) (string, string) {
			answer, err := w.grpc.SendMessage(callingAs(w.t.Context(), token), &pb.SendMessageRequest{Tenant: "memory", Message: &pb.Message{
				MessageId: id, ContextId: inContext, Role: pb.Role_ROLE_USER, Parts: []*pb.Part{{Content: &pb.Part_Text{Text: text}}},
			}})
			if err != nil {
				return "", status.Convert(err).Message()
			}
			return answer.GetTask().GetId(), ""
		},
	}
}

func startWays(t *testing.T, database, agents, more string) *a2aWays {
	t.Helper()
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, instance.Settings{Database: database, Agents: agents, More: fmt.Sprintf("[a2a]\ngrpc_listen = %q\n", address) + more})
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return &a2aWays{s, pb.NewA2AServiceClient(connection), address}
}

func grpcTrailer(trailer *metadata.MD) grpc.CallOption { return grpc.Trailer(trailer) }

func (s *server) mint(name string) string {
	s.t.Helper()
	token, err := s.Token(context.WithoutCancel(s.t.Context()), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// TestParallelSendsOfOneMessage: 50 copies at once are one task and one run, and each copy gets that task; the same id with
// other words is refused; the same id of another party is another message.
func TestParallelSendsOfOneMessage(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		agent := startScripted(t, heard)
		w := startWays(t, database, agent.table("memory", ""), "")
		ann, bob := w.mint("ann"), w.mint("bob")
		asked := 0
		for name, send := range w.ways() {
			for _, inContext := range []string{"", "context of " + name} {
				id := strings.ReplaceAll(name+" "+inContext, " ", "-")
				tasks := make([]string, 50)
				var all sync.WaitGroup
				for i := range tasks {
					all.Go(func() {
						task, refusal := send(ann, id, inContext, "the same words")
						if tasks[i] = task; refusal != "" {
							t.Errorf("%s: copy %d is refused: %s", id, i, refusal)
						}
					})
				}
				await.Done(t, all.Wait, "the answers to all copies")
				for i, task := range tasks {
					if task == "" || task != tasks[0] {
						t.Errorf("%s: copy %d has task %q, the first %q", id, i, task, tasks[0])
					}
				}
				asked++
				if task, refusal := send(ann, id, inContext, "other words"); !strings.Contains(refusal, "was used for another message") {
					t.Errorf("%s: other words under the same id: task %q, %s", id, task, refusal)
				}
			}
			other, refusal := send(bob, strings.ReplaceAll(name+" ", " ", "-"), "", "the same words")
			if asked++; refusal != "" || other == "" {
				t.Errorf("%s: somebody else with the same id: %q %s", name, other, refusal)
			}
		}
		if n := len(agent.questions()); n != asked {
			t.Errorf("the agent was asked %d times, want %d", n, asked)
		}
	})
}

// dyingModel says words and is silent until it is let go: the server dies in between. The next run says all of it.
type dyingModel struct {
	runs    atomic.Int64
	release chan struct{}
}

func (m *dyingModel) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body)
	run := m.runs.Add(1)
	writer.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(writer).Flush
	_, _ = io.WriteString(writer, chunkOf(fmt.Sprintf("run %d: one ", run)))
	_ = flush()
	select {
	case <-m.release:
	case <-request.Context().Done():
		return
	}
	_, _ = io.WriteString(writer, chunkOf("two ")+chunkOf("three")+endOfModel)
}

// TestSubscribersOutliveACrash: the server dies while an answer grows. Its subscriber comes back and gets a snapshot and the
// rest: each word of the run that ended once, and the end once, as the last event. A second reader who was never there
// before gets the same.
func TestSubscribersOutliveACrash(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		model := &dyingModel{release: make(chan struct{})}
		provider := httptest.NewServer(model)
		t.Cleanup(provider.Close)
		s := start(t, instance.Settings{Database: database, Lease: leaseOf(database), Agents: modelAgent("memory", provider.URL)})
		token := s.mint("ann")
		first := s.openStream(t, "memory", token, "SendStreamingMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"count"}]}}`)
		first.until(t, func() bool { return strings.Contains(first.text, "run 1: one") })
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if more, err := first.next(); more || first.ends > 0 {
			t.Errorf("after the crash the stream goes on: %v, %v", more, err)
		}
		s.start()

		subscribe := `{"id":"` + first.task + `"}`
		again := s.openStream(t, "memory", token, "SubscribeToTask", subscribe)
		again.until(t, func() bool { return strings.Contains(again.text, "run 2: one") })
		other := s.openStream(t, "memory", token, "SubscribeToTask", subscribe)
		close(model.release)
		for name, stream := range map[string]*a2aStream{"who was there": again, "a new one": other} {
			stream.toEnd(t)
			if stream.task != first.task || stream.state != completed || stream.text != "run 2: one two three" || stream.ends != 1 || stream.after != 0 {
				t.Errorf("%s has task %s (of %s), %s, %q, %d ends and %d events behind", name, stream.task, first.task, stream.state, stream.text, stream.ends, stream.after)
			}
		}
		peer := load.A2APeer{URL: s.URL() + "/a2a/memory", Token: token, Client: &http.Client{Timeout: patience}}
		task, err := peer.Get(t.Context(), first.task)
		if err != nil || texts(task) != "run 2: one two three" || len(task.Answers()) != 1 {
			t.Errorf("the stored task has %q (%v)", texts(task), err)
		}
		if n := model.runs.Load(); n != 2 {
			t.Errorf("the model was asked %d times, want 2", n)
		}
	})
}

// leaseOf is as short as it may be where another node could still live. On SQLite no one can, and the server that comes back
// waits for no lease: the longest one shows it.
func leaseOf(database string) string {
	if database == "" {
		return "10m"
	}
	return "1s"
}

// TestRepeatedSendAfterACrash: the connection of a blocking send dies with the server, before the first run began or while
// it works. The same message again is the same task and is answered once.
func TestRepeatedSendAfterACrash(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		model := &dyingModel{release: make(chan struct{})}
		provider := httptest.NewServer(model)
		t.Cleanup(provider.Close)
		s := start(t, instance.Settings{Database: database, Lease: leaseOf(database), Agents: modelAgent("memory", provider.URL)})
		token := s.mint("ann")
		peer := load.A2APeer{URL: s.URL() + "/a2a/memory", Token: token, Client: &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}}

		// While the run works.
		died := make(chan error, 1)
		go func() {
			_, err := peer.Send(t.Context(), load.SendBody("m1", "count", false))
			died <- err
		}()
		eventually(t, "the run works", func() bool { return model.runs.Load() == 1 })
		s.killed()
		if err := await.Receive(t, died, "the end of the blocking send"); err == nil {
			t.Error("the blocking send was answered by a dead server")
		}
		// At once after the message was taken: the run may or may not have begun.
		taken, err := peer.Send(t.Context(), load.SendBody("m2", "count", true))
		if err != nil {
			t.Fatal(err)
		}
		s.killed()

		close(model.release)
		for id, known := range map[string]string{"m1": "", "m2": taken.ID} {
			task, err := peer.Send(t.Context(), load.SendBody(id, "count", false))
			if err != nil || task.Status.State != completed || known != "" && task.ID != known || !strings.HasSuffix(texts(task), "one two three") || len(task.Answers()) != 1 {
				t.Errorf("%s again: %+v, %v", id, task, err)
			}
			if repeated, err := peer.Send(t.Context(), load.SendBody(id, "count", false)); err != nil || repeated.ID != task.ID || texts(repeated) != texts(task) {
				t.Errorf("%s a third time: %+v, %v", id, repeated, err)
			}
		}
		if turns := states(t, s.Instance); len(turns) != 2 {
			t.Errorf("the turns are %v, want two", turns)
		}
	})
}
