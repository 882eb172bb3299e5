package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"inbox/internal/fault"
	"inbox/normalized"
)

func TestHostileBodies(t *testing.T) {
	deep := strings.Repeat(`[`, 100000)
	long := strings.Repeat("x", maxLineBytes)
	for _, test := range []struct {
		action, body string
		status       int
		says         string
	}{
		{"answer", `{`, 400, ""},
		{"answer", `[]`, 400, "object"},
		{"answer", `null`, 400, ""},
		{"answer", `{"parts":[{"kind":"file","mime":"a/b","bytes_ref":{"kind":"content_addressed","algo":"sha256","digest":"` + strings.Repeat("0", 64) + `"}}]}`, 400, "parts[0].bytes_ref.digest"},
		{"answer", `{"parts":[]}`, 400, "parts"},
		{"answer", `{"parts":[{"kind":"text","mime":"text/plain","content":"x"}],"in_reply_to":"another"}`, 400, "in_reply_to"},
		{"answer", `{"parts":` + deep, 400, ""},
		{"answer", strings.Repeat(" ", MaxAnswerBytes+1), 413, "8388608"},
		{"answer", "", 400, "parts"},
		{"fail", ``, 400, "retry"},
		{"fail", `{}`, 400, "retry"},
		{"fail", `{"retry":"yes"}`, 400, "retry"},
		{"fail", `{"retry":true,"after":-1}`, 400, "after"},
		{"fail", `{"retry":true,"after":1e300}`, 400, "after"},
		{"fail", strings.Repeat(" ", maxFailBytes+1), 413, ""},
		{"deltas", `{"kind":"nonsense"}`, 400, "delta 0"},
		{"deltas", `nonsense`, 400, "delta 0"},
		{"deltas", deep, 400, "delta 0"},
		{"deltas", long + "x", 413, "1 MiB"},
		{"deltas", `{"kind":"part_end"}`, 400, "no part was begun"},
		{"deltas&first=1", `{"kind":"text","text":"x"}`, 400, "at most 0"},
		{"deltas&first=-1", `{"kind":"text","text":"x"}`, 400, "first"},
		{"deltas&first=x", `{"kind":"text","text":"x"}`, 400, "first"},
	} {
		t.Run(test.action+" "+test.body[:min(len(test.body), 40)], func(t *testing.T) {
			bubble(t, Settings{}, func(t *testing.T, n *node) {
				done := n.run(t.Context(), question())
				turn := n.take(t)
				action, parameters, _ := strings.Cut(test.action, "&")
				if said := n.want(t, test.status, turn.path(action)+"&"+parameters, test.body); !strings.Contains(said, test.says) {
					t.Errorf("says %s, want a word about %q", said, test.says)
				}
				n.want(t, http.StatusOK, turn.path("answer"), answerHello) // a refused body costs nothing
				mustAnswer(t, done, "hello")
			})
		})
	}
}

// TestEndlessDeltasAreRefused: what a run may keep is bounded, whatever of it has room in the answer.
func TestEndlessDeltasAreRefused(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		done := n.run(t.Context(), question())
		turn := n.take(t)
		eight := strings.Repeat(`{"kind":"text","text":"`+strings.Repeat("x", 1<<20-30)+`"}`+"\n", 8)
		for range 4 {
			n.want(t, http.StatusOK, turn.path("deltas"), eight)
			n.service.sessions.forget(turn.Lease.ID) // as another node would
		}
		if said := n.want(t, http.StatusRequestEntityTooLarge, turn.path("deltas"), eight); !strings.Contains(said, "delta 32") {
			t.Errorf("says %s", said)
		}
		n.want(t, http.StatusOK, turn.path("answer"), answerHello)
		mustAnswer(t, done, "hello")
	})
}

// TestAnswersThatAreTooLargeAreCut: the work is done, so the size of an answer is no failure, on any node.
func TestAnswersThatAreTooLargeAreCut(t *testing.T) {
	text := strings.Repeat("x", 1<<20-60)
	for name, test := range map[string]struct{ deltas, answer string }{
		"document": {"", `{"parts":[{"kind":"text","mime":"text/plain","content":"` + text + text + `"}]}`},
		"deltas":   {strings.Repeat(`{"kind":"text","text":"`+text+`"}`+"\n", 2), ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Settings{}, func(t *testing.T, n *node) {
				done := n.run(t.Context(), question())
				turn := n.take(t)
				if test.deltas != "" {
					n.want(t, http.StatusOK, turn.path("deltas"), test.deltas)
					n.service.sessions.forget(turn.Lease.ID) // as another node would
				}
				n.want(t, http.StatusOK, turn.path("answer"), test.answer)
				got := mustAnswer(t, done, strings.Repeat("x", 1<<20)+"("+strconv.Itoa(1<<20-120)+" more bytes are not shown.)")
				if got.response.Left != (normalized.Left{Bytes: 1<<20 - 120}) {
					t.Errorf("counts %+v as left out", got.response.Left)
				}
			})
		})
	}
}

func TestLeaseOfSomethingElse(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		other, err := n.service.Agent("other", Settings{})
		if err != nil {
			t.Fatal(err)
		}
		foreign := (&node{agent: other}).run(t.Context(), question())
		synctest.Wait()
		theirs, err := other.take(t.Context(), nil)
		if err != nil || theirs == nil {
			t.Fatal(theirs, err)
		}
		done := n.run(t.Context(), question())
		turn := n.take(t)
		wrongTurn, wrongAgent, unknown := turn, turn, turn
		wrongTurn.Turn.ID = "turn another/../%2F\u0000"
		wrongAgent.Lease.ID = theirs.run
		unknown.Lease.ID = "01a1ff69-41ec-757c-8151-b67dd0ca9c3b"
		for _, wrong := range []*taken{&wrongTurn, &wrongAgent, &unknown} {
			n.refuses(t, wrong)
		}
		for _, id := range []string{"", "x", "../s-claim", strings.Repeat("0", 5000)} {
			turn := turn
			turn.Lease.ID = id
			n.want(t, http.StatusBadRequest, turn.path("answer"), answerHello)
		}
		n.want(t, http.StatusOK, turn.path("answer"), answerHello)
		mustAnswer(t, done, "hello")
		if got := <-foreign; got.err == nil {
			t.Error("the turn of the other agent was answered")
		}
	})
}

func TestAnswerCountsOnce(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		done := n.run(t.Context(), question())
		turn := n.take(t)
		if said := n.want(t, http.StatusOK, turn.path("answer"), answerHello); said != `{"state":"answered"}`+"\n" {
			t.Errorf("says %s", said)
		}
		mustAnswer(t, done, "hello")
		if said := n.want(t, http.StatusOK, turn.path("answer"), answerHello); said != `{"state":"answered","repeated":true}`+"\n" {
			t.Errorf("the repeat says %s", said)
		}
		n.want(t, http.StatusConflict, turn.path("answer"), strings.Replace(answerHello, "hello", "other", 1))
		n.want(t, http.StatusConflict, turn.path("fail"), `{"retry":true}`)
		n.want(t, http.StatusGone, turn.path("heartbeat"), "")
		later(time.Hour)
		n.want(t, http.StatusConflict, turn.path("answer"), answerHello[:10])
	})
}

func TestRefusedDeltaKeepsThoseBefore(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		done := n.run(t.Context(), question())
		turn := n.take(t)
		lines := `{"kind":"text","text":"one "}` + "\n" + `{"kind":"text","text":"two "}` + "\nnonsense\n"
		if said := n.want(t, http.StatusBadRequest, turn.path("deltas"), lines); !strings.Contains(said, "delta 2: ") {
			t.Errorf("says %s", said)
		}
		again := strings.Replace(lines, "nonsense", `{"kind":"text","text":"three"}`, 1)
		if said := n.want(t, http.StatusOK, turn.path("deltas")+"&first=0", again); !strings.Contains(said, `"next":3`) {
			t.Errorf("says %s", said)
		}
		n.want(t, http.StatusOK, turn.path("deltas")+"&first=0", again)
		n.want(t, http.StatusOK, turn.path("answer"), "")
		mustAnswer(t, done, "one two three")
	})
}

func TestWholeAnswerReplacesDeltas(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		done := n.run(t.Context(), question())
		turn := n.take(t)
		n.want(t, http.StatusOK, turn.path("deltas"), `{"kind":"text","text":"draft"}`)
		n.want(t, http.StatusOK, turn.path("answer"), answerHello)
		mustAnswer(t, done, "hello")
	})
}

// TestDeltasComeWhileTheyGrow streams one request for many times its lease.
func TestDeltasComeWhileTheyGrow(t *testing.T) {
	bubble(t, Settings{Lease: 10 * time.Second}, func(t *testing.T, n *node) {
		deltas := make(chan string, 100)
		ended := make(chan error, 1)
		go func() {
			for delta, err := range n.agent.Handle(t.Context(), question()) {
				if err != nil {
					ended <- err
					return
				}
				deltas <- delta.Text
			}
			ended <- nil
		}()
		turn := n.take(t)
		reader, writer := io.Pipe()
		status := make(chan int, 1)
		go func() {
			recorder := httptest.NewRecorder()
			n.handler.ServeHTTP(recorder, request(t.Context(), http.MethodPost, turn.path("deltas"), reader))
			status <- recorder.Code
		}()
		for i := range 5 {
			word := fmt.Sprintf("word %d ", i)
			_, _ = io.WriteString(writer, `{"kind":"text","text":"`+word+`"}`+"\n")
			if got := <-deltas; got != word {
				t.Errorf("delta %q, want %q", got, word)
			}
			for range 4 {
				later(9 * time.Second)
				_, _ = io.WriteString(writer, "\n")
			}
		}
		if got, said := n.ask(t, http.MethodPost, turn.path("deltas"), `{"kind":"text","text":"x"}`); got != http.StatusTooManyRequests {
			t.Errorf("a second stream gets %d %s", got, said)
		}
		_ = writer.Close()
		if got := <-status; got != http.StatusOK {
			t.Errorf("the stream ended with %d", got)
		}
		n.want(t, http.StatusOK, turn.path("answer"), "")
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestFloodOfDeltasIsSlowed counts what comes through in ten seconds.
func TestFloodOfDeltasIsSlowed(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		deltas := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, err := range n.agent.Handle(t.Context(), question()) {
				if err == nil {
					deltas++
				}
			}
		}()
		turn := n.take(t)
		endless := io.MultiReader(forever(), iotest.ErrReader(errors.New("never")))
		recorder := httptest.NewRecorder()
		n.handler.ServeHTTP(recorder, request(ctx, http.MethodPost, turn.path("deltas"), endless))
		n.want(t, http.StatusOK, turn.path("answer"), answerHello)
		<-done
		if most := 11 * batchDeltas * int(time.Second/batchPause); deltas > most || deltas == 0 {
			t.Errorf("%d deltas in ten seconds, want at most %d", deltas, most)
		}
	})
}

type endless struct{ line string }

func forever() io.Reader { return &endless{`{"kind":"text","text":"."}` + "\n"} }

func (e *endless) Read(into []byte) (int, error) {
	n := copy(into, strings.Repeat(e.line, len(into)/len(e.line)))
	return n, nil
}

func TestPollersAreCounted(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		ctx, cancel := context.WithCancel(t.Context())
		for range MaxPollers {
			go n.handler.ServeHTTP(httptest.NewRecorder(), request(ctx, http.MethodPost, "/take?wait=50s", nil))
		}
		synctest.Wait()
		n.want(t, http.StatusTooManyRequests, "/take", "")
		if status, _ := n.ask(t, http.MethodGet, "/events", ""); status != http.StatusTooManyRequests {
			t.Errorf("one more stream gets %d", status)
		}
		cancel()
		synctest.Wait()
		n.want(t, http.StatusNoContent, "/take?wait=0", "")
	})
}

func TestParameters(t *testing.T) {
	n := newNode(t, nil, Settings{})
	for _, path := range []string{"/take?wait=soon", "/take?wait=-1s", "/take?wait=99999999999999999999"} {
		n.want(t, http.StatusBadRequest, path, "")
	}
	for _, path := range []string{"/events?max=0", "/events?max=17", "/events?max=x"} {
		if status, _ := n.ask(t, http.MethodGet, path, ""); status != http.StatusBadRequest {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _ := n.ask(t, http.MethodHead, "/events", ""); status != http.StatusOK {
		t.Errorf("HEAD: %d", status)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := New(Options{}); !fault.Is(err, fault.Malformed) {
		t.Errorf("without tokens: %v", err)
	}
	service, err := New(Options{Tokens: testTokens()})
	if err != nil {
		t.Fatal(err)
	}
	for name, settings := range map[string]Settings{
		"bad name": {}, "": {}, "a": {Lease: time.Millisecond}, "b": {Lease: 2 * time.Hour}, "c": {MaxWait: -1},
	} {
		if _, err := service.Agent(name, settings); !fault.Is(err, fault.Malformed) {
			t.Errorf("%q %+v: %v", name, settings, err)
		}
	}
	if _, err := service.Agent("twice", Settings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.Agent("Twice", Settings{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the same name again: %v", err)
	}
}

// brokenMailbox fails where it is told to.
type brokenMailbox struct {
	Mailbox

	broken atomic.Bool
}

var errDown = errors.New("secret host is down")

func (m *brokenMailbox) List(ctx context.Context, namespace, after string, limit int) ([]string, [][]byte, error) {
	if m.broken.Load() {
		return nil, nil, errDown
	}
	return m.Mailbox.List(ctx, namespace, after, limit)
}

func (m *brokenMailbox) Get(ctx context.Context, namespace, key string) ([]byte, bool, error) {
	if m.broken.Load() {
		return nil, false, errDown
	}
	return m.Mailbox.Get(ctx, namespace, key)
}

// TestMailboxThatIsDown fails politely, and the program's work is taken up when it is back.
func TestMailboxThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mailbox := &brokenMailbox{Mailbox: NewMemory()}
		n := newNode(t, mailbox, Settings{})
		done := n.run(t.Context(), question())
		turn := n.take(t)
		synctest.Wait()
		mailbox.broken.Store(true)
		for _, path := range []string{"/take", turn.path("heartbeat"), turn.path("deltas"), turn.path("answer")} {
			if said := n.want(t, http.StatusServiceUnavailable, path, answerHello); strings.Contains(said, "secret") {
				t.Errorf("internals leak: %s", said)
			}
		}
		if f := fault.Of((<-done).err); f.Permanent || f.Kind != fault.Unavailable {
			t.Errorf("error %v, want one that allows another try", f)
		}
		if f := fault.Of((<-n.run(t.Context(), question())).err); f.Permanent || f.Kind != fault.Unavailable {
			t.Errorf("error %v, want one that allows another try", f)
		}
		mailbox.broken.Store(false)
		n.want(t, http.StatusOK, turn.path("answer"), answerHello)
		mustAnswer(t, n.run(t.Context(), question()), "hello")
	})
}
