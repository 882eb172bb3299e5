package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
)

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
	t.Parallel()
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

// leaseOf is as short as it may be where another node could still live. On SQLite nobody can, and the server that comes back
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
	t.Parallel()
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
