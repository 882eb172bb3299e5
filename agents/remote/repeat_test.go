package remote

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"inbox/internal/fault"
	"inbox/normalized"
)

// TestCrashDoesNotAskTwice breaks the first attempt off as soon as the task is known, as a dying process does.
func TestCrashDoesNotAskTwice(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			server := startUpstream(t, way, true, growing)
			state := newMemory()
			fresh := func() *Agent { return newAgent(t, server.URL, func(o *Options) { o.State = state }) }
			turn := turnOf("1", "hello")
			for _, err := range fresh().Handle(t.Context(), turn) {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			turn.Attempt = 2
			if got := textOf(mustHandle(t, fresh(), turn).response); got != "You **said**: hello" {
				t.Errorf("got %q", got)
			}
			if got := len(server.received()); got != 1 {
				t.Errorf("the agent worked %d times, want 1", got)
			}
		})
	}
}

// TestCrashBeforeTheTaskIsKnown repeats with the same id, which is all that can be done.
func TestCrashBeforeTheTaskIsKnown(t *testing.T) {
	var whole atomic.Bool
	server := startScripted(t, true, func(c *call) {
		if !whole.Load() {
			c.cut()
			return
		}
		c.event(`{"message":{"messageId":"m","role":"ROLE_AGENT","contextId":"c","parts":[{"text":"hi"}]}}`)
	})
	agent := newAgent(t, server.URL, nil)
	turn := turnOf("1", "x")
	if _, err := handle(t.Context(), t, agent, turn); err == nil || fault.Of(err).Permanent {
		t.Fatalf("got %v", err)
	}
	whole.Store(true)
	turn.Attempt = 2
	if got := textOf(mustHandle(t, agent, turn).response); got != "hi" {
		t.Errorf("got %q", got)
	}
	if want := []string{turn.ID, turn.ID}; !slices.Equal(server.sent(), want) {
		t.Errorf("message ids %v, want %v", server.sent(), want)
	}
}

// TestCrashWhileAQuestionIsAnswered looks first whether the answer has arrived.
func TestCrashWhileAQuestionIsAnswered(t *testing.T) {
	question := func(id string) string {
		return strings.Replace(taskJSON("INPUT_REQUIRED", ""), `"TASK_STATE_INPUT_REQUIRED"`,
			`"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"`+id+`","role":"ROLE_AGENT","parts":[{"text":"`+id+`?"}]}`, 1)
	}
	tests := map[string]struct {
		afterwards string
		messages   int
		want       string
	}{
		"it did not":           {question("first"), 3, "the whole answer"},
		"it did":               {taskJSON("COMPLETED", answerArtifact), 2, "the whole answer"},
		"it asks another time": {question("second"), 2, "second?"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int32
			server := startScripted(t, false, func(c *call) {
				switch {
				case c.Method == "GetTask":
					c.result(test.afterwards)
				case sent.Load() == 0:
					sent.Add(1)
					c.result(wrapped(question("first")))
				case sent.Load() == 1:
					sent.Add(1)
					c.cut()
				default:
					c.result(wrapped(taskJSON("COMPLETED", answerArtifact)))
				}
			})
			agent := newAgent(t, server.URL, nil)
			if got := textOf(mustHandle(t, agent, turnOf("1", "x")).response); got != "first?" {
				t.Fatalf("got %q", got)
			}
			turn := turnOf("2", "y")
			if _, err := handle(t.Context(), t, agent, turn); err == nil {
				t.Fatal("no error")
			}
			turn.Attempt = 2
			if got := textOf(mustHandle(t, agent, turn).response); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if len(server.sent()) != test.messages {
				t.Errorf("%d messages, want %d", len(server.sent()), test.messages)
			}
		})
	}
}

// TestOldQuestionIsNotTheAnswer: an agent may show the question for a moment after it was answered.
func TestOldQuestionIsNotTheAnswer(t *testing.T) {
	var looks atomic.Int32
	server := startScripted(t, false, func(c *call) {
		switch {
		case c.Method == "SendMessage":
			c.result(wrapped(taskJSON("INPUT_REQUIRED", "")))
		case looks.Add(1) <= 2:
			c.result(taskJSON("INPUT_REQUIRED", ""))
		default:
			c.result(taskJSON("COMPLETED", answerArtifact))
		}
	})
	agent := newAgent(t, server.URL, nil)
	mustHandle(t, agent, turnOf("1", "x"))
	if got := textOf(mustHandle(t, agent, turnOf("2", "y")).response); got != "the whole answer" {
		t.Errorf("got %q", got)
	}
	looks.Store(-100) // now it asks the very same for ever
	mustHandle(t, agent, turnOf("3", "x"))
	if got := mustHandle(t, agent, turnOf("4", "y")).response; got.Status != normalized.StatusInputRequired {
		t.Errorf("got %s", got.Status)
	}
}

func TestLoginElsewhereLetsTheTaskGoOn(t *testing.T) {
	server := startScripted(t, false, func(c *call) {
		switch {
		case c.Method == "GetTask":
			c.result(taskJSON("COMPLETED", answerArtifact))
		case strings.Contains(string(c.Params), `"taskId"`):
			c.fails(http.StatusOK, -32004, "the task is over")
		default:
			c.result(wrapped(taskJSON("AUTH_REQUIRED", "")))
		}
	})
	agent := newAgent(t, server.URL, nil)
	if got := mustHandle(t, agent, turnOf("1", "x")).response; textOf(got) != sayLogin || got.Status != normalized.StatusInputRequired {
		t.Fatalf("got %s %q", got.Status, textOf(got))
	}
	if got := textOf(mustHandle(t, agent, turnOf("2", "done")).response); got != "the whole answer" {
		t.Errorf("got %q", got)
	}
}

// TestTaskThatWaitsForALoginTakesNoMessages: the SDK keeps such a task running.
func TestTaskThatWaitsForALoginTakesNoMessages(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			server := startUpstream(t, way, true, demanding(a2a.TaskStateAuthRequired, `{}`))
			agent := newAgent(t, server.URL, nil)
			for _, id := range []string{"1", "2", "3"} {
				if got := mustHandle(t, agent, turnOf(id, "x")).response; got.Status != normalized.StatusInputRequired || len(server.received()) != 1 {
					t.Errorf("got %s after %d runs", got.Status, len(server.received()))
				}
			}
		})
	}
}

func TestStateThatFailsIsTriedAgain(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	state := newMemory()
	state.Fail(errors.New("disk full"))
	agent := newAgent(t, server.URL, func(o *Options) { o.State = state })
	_, err := handle(t.Context(), t, agent, turnOf("1", "x"))
	if got := fault.Of(err); got.Permanent || got.Kind != fault.Unavailable || strings.Contains(got.Public, "disk") {
		t.Errorf("got %v", err)
	}
	state.Fail(nil)
	mustHandle(t, agent, turnOf("1", "x"))
}

func TestBlindStateBeginsAnew(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	state := newMemory()
	agent := newAgent(t, server.URL, func(o *Options) { o.State = state })
	mustHandle(t, agent, turnOf("1", "x"))
	for key := range state.All(namespace) {
		if err := state.Put(t.Context(), namespace, key, []byte("not JSON"), time.Now().Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	mustHandle(t, agent, turnOf("2", "x"))
}

// TestManyTurnsAtOnce shares one agent.
func TestManyTurnsAtOnce(t *testing.T) {
	server := startUpstream(t, wayREST, true, func(ctx context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
		growing(ctx, call, yield)
	})
	agent := newAgent(t, server.URL, nil)
	t.Run("turns", func(t *testing.T) {
		for id := range strings.SplitSeq("abcdefghijklmnop", "") {
			t.Run(id, func(t *testing.T) {
				t.Parallel()
				turn := turnOf(id, "I am "+id)
				turn.Message.ThreadID += id
				if got := textOf(mustHandle(t, agent, turn).response); got != "You **said**: I am "+id {
					t.Errorf("got %q", got)
				}
			})
		}
	})
}
