package pull

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/internal/fault"
)

// bubble runs a test with a clock of its own.
func bubble(t *testing.T, settings Settings, test func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newNode(t, nil, settings)) })
}

// later lets the clock of the bubble go on.
func later(d time.Duration) { <-time.After(d) }

func TestNobodyTakesTheTurn(t *testing.T) {
	bubble(t, Settings{MaxWait: 20 * time.Second}, func(t *testing.T, n *node) {
		begun := time.Now()
		got := <-n.run(t.Context(), question())
		if f := fault.Of(got.err); f.Permanent || f.Kind != fault.Unavailable || f.Public != upstream.Unreachable {
			t.Errorf("error %v, want one that allows another try", got.err)
		}
		if waited := time.Since(begun); waited != 20*time.Second {
			t.Errorf("waited %s", waited)
		}
		n.want(t, http.StatusNoContent, "/take?wait=0", "")
	})
}

func TestTakerWaitsForTheTurn(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		begun := time.Now()
		n.want(t, http.StatusNoContent, "/take?wait=7", "")
		n.want(t, http.StatusNoContent, "/take", "")
		n.want(t, http.StatusNoContent, "/take?wait=24h", "")
		if waited := time.Since(begun); waited != 97*time.Second {
			t.Errorf("waited %s, want 7 s, 30 s and a minute", waited)
		}
		time.AfterFunc(3*time.Second, func() { n.run(t.Context(), question()) })
		turn := n.take(t)
		if waited := time.Since(begun); waited != 100*time.Second {
			t.Errorf("waited %s, want no more than needed", waited)
		}
		n.want(t, http.StatusOK, turn.path("answer"), answerHello)
	})
}

func TestSilentProgramLosesTheLease(t *testing.T) {
	bubble(t, Settings{Lease: 10 * time.Second}, func(t *testing.T, n *node) {
		done := n.run(t.Context(), question())
		turn := n.take(t)
		begun := time.Now()
		got := <-done
		if f := fault.Of(got.err); f.Permanent || f.Public != upstream.Late {
			t.Errorf("error %v, want one that allows another try", got.err)
		}
		if waited := time.Since(begun); waited != 11*time.Second {
			t.Errorf("waited %s, want the lease and a second for other nodes", waited)
		}
		n.refuses(t, &turn)
		again := question()
		again.Attempt = 2
		done = n.run(t.Context(), again)
		next := n.take(t)
		if next.Turn.Attempt != 2 || next.Lease.ID == turn.Lease.ID {
			t.Errorf("second attempt is %+v %+v", next.Turn, next.Lease)
		}
		n.refuses(t, &turn)
		n.want(t, http.StatusOK, next.path("answer"), answerHello)
		mustAnswer(t, done, "hello")
	})
}

// refuses checks what a program hears whose lease is over.
func (n *node) refuses(t *testing.T, turn *taken) {
	t.Helper()
	n.want(t, http.StatusGone, turn.path("heartbeat"), "")
	n.want(t, http.StatusConflict, turn.path("deltas"), `{"kind":"text","text":"x"}`)
	n.want(t, http.StatusConflict, turn.path("answer"), answerHello)
	n.want(t, http.StatusConflict, turn.path("answer"), "")
	n.want(t, http.StatusConflict, turn.path("fail"), `{"retry":true}`)
}

func TestSignsOfLifeKeepTheLease(t *testing.T) {
	for name, sign := range map[string]func(t *testing.T, n *node, turn *taken){
		"heartbeat": func(t *testing.T, n *node, turn *taken) {
			if said := n.want(t, http.StatusOK, turn.path("heartbeat"), ""); said != `{"lease":{"id":"`+turn.Lease.ID+`","seconds":10}}`+"\n" {
				t.Errorf("heartbeat says %s", said)
			}
		},
		"delta": func(t *testing.T, n *node, turn *taken) {
			n.want(t, http.StatusOK, turn.path("deltas"), `{"kind":"text","text":"."}`)
		},
		"empty line": func(t *testing.T, n *node, turn *taken) { n.want(t, http.StatusOK, turn.path("deltas"), "\n \n\n") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Settings{Lease: 10 * time.Second}, func(t *testing.T, n *node) {
				done := n.run(t.Context(), question())
				turn := n.take(t)
				for range 30 {
					later(9 * time.Second)
					sign(t, n, &turn)
				}
				n.want(t, http.StatusOK, turn.path("answer"), answerHello)
				mustAnswer(t, done, "hello")
			})
		})
	}
}

func TestCancelledTurnStopsTheProgram(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context) (context.Context, context.CancelFunc){
		"cancelled": context.WithCancel,
		"late": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 5*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Settings{}, func(t *testing.T, n *node) {
				ctx, cancel := end(t.Context())
				defer cancel()
				done := n.run(ctx, question())
				turn := n.take(t)
				n.want(t, http.StatusOK, turn.path("heartbeat"), "")
				if name == "cancelled" {
					cancel()
				}
				if got := <-done; !errors.Is(got.err, ctx.Err()) || ctx.Err() == nil {
					t.Errorf("error %v, want that of the context", got.err)
				}
				n.refuses(t, &turn)
			})
		})
	}
}

func TestCancelledOfferIsGone(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		ctx, cancel := context.WithCancel(t.Context())
		done := n.run(ctx, question())
		synctest.Wait()
		cancel()
		<-done
		n.want(t, http.StatusNoContent, "/take?wait=0", "")
	})
}

func TestEngineThatWantsNoMoreStopsTheProgram(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, err := range n.agent.Handle(t.Context(), question()) {
				if err != nil {
					t.Error(err)
				}
				break
			}
		}()
		turn := n.take(t)
		n.want(t, http.StatusOK, turn.path("deltas"), `{"kind":"text","text":"one"}`)
		<-done
		n.refuses(t, &turn)
	})
}

// TestNoTurnIsTakenTwice lets many programs on two nodes fight for the turns.
func TestNoTurnIsTakenTwice(t *testing.T) {
	const turns, takers = 12, 40
	mailbox := NewMemory()
	nodes := []*node{newNode(t, mailbox, Settings{}), newNode(t, mailbox, Settings{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	results := make([]<-chan outcome, turns)
	for i := range turns {
		turn := question()
		turn.ID += string(rune('a' + i))
		results[i] = nodes[i%2].run(ctx, turn)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	var fighting sync.WaitGroup
	for i := range takers {
		fighting.Go(func() {
			status, said := nodes[i%2].ask(t, http.MethodPost, "/take?wait=2s", "")
			if status != http.StatusOK {
				return
			}
			var turn taken
			turn.read(t, []byte(said))
			mu.Lock()
			seen[turn.Turn.ID]++
			mu.Unlock()
			if status, said := nodes[(i+1)%2].ask(t, http.MethodPost, turn.path("answer"), answerHello); status != http.StatusOK {
				t.Errorf("answer: %d %s", status, said)
			}
		})
	}
	fighting.Wait()
	for _, result := range results {
		mustAnswer(t, result, "hello")
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("%s was taken %d times", id, times)
		}
	}
	if len(seen) != turns {
		t.Errorf("%d turns taken, want %d", len(seen), turns)
	}
}

// TestTurnThroughAnotherNode takes, streams and answers on other nodes than the one that runs the turn.
func TestTurnThroughAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mailbox := NewMemory()
		a, b, c := newNode(t, mailbox, Settings{}), newNode(t, mailbox, Settings{}), newNode(t, mailbox, Settings{})
		time.AfterFunc(2500*time.Millisecond, func() {
			done := a.run(t.Context(), question())
			go func() { mustAnswer(t, done, "one two three") }()
		})
		begun := time.Now()
		turn := b.take(t)
		if waited := time.Since(begun); waited > 3500*time.Millisecond {
			t.Errorf("the turn came after %s, want at most a second later than its offer", waited)
		}
		b.want(t, http.StatusOK, turn.path("deltas"), `{"kind":"text","text":"one "}`)
		c.want(t, http.StatusOK, turn.path("deltas"), `{"kind":"text","text":"two "}`)
		b.want(t, http.StatusOK, turn.path("deltas"), `{"kind":"text","text":"three"}`)
		c.want(t, http.StatusOK, turn.path("heartbeat"), "")
		a.want(t, http.StatusOK, turn.path("answer"), "")
		if said := b.want(t, http.StatusOK, turn.path("answer"), ""); !strings.Contains(said, `"repeated":true`) {
			t.Errorf("the repeat says %s", said)
		}
		later(2 * time.Second)
	})
}

// errTaken is a cause like those of the queue.
var errTaken = errors.New("job lease lost")

// TestProgramGoesOnWhenTheTurnIsTakenOver keeps the work of a program when a node is killed, stops or loses its job.
func TestProgramGoesOnWhenTheTurnIsTakenOver(t *testing.T) {
	for name, answerBetween := range map[string]bool{"answer later": false, "answer in between": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mailbox := NewMemory()
				a, b := newNode(t, mailbox, Settings{}), newNode(t, mailbox, Settings{})
				ctx, stop := context.WithCancelCause(t.Context())
				bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
				defer cancel()
				done := a.run(bounded, question())
				turn := a.take(t)
				a.want(t, http.StatusOK, turn.path("deltas"), `{"kind":"text","text":"one "}`)
				stop(errTaken)
				if got := <-done; !errors.Is(got.err, errTaken) {
					t.Fatalf("error %v", got.err)
				}
				b.want(t, http.StatusOK, turn.path("heartbeat"), "")
				b.want(t, http.StatusOK, turn.path("deltas"), `{"kind":"text","text":"two"}`)
				if answerBetween {
					b.want(t, http.StatusOK, turn.path("answer"), "")
				}
				again := question()
				again.Attempt = 2
				again.Message.History = nil // it may have been trimmed in another way
				done = b.run(t.Context(), again)
				if !answerBetween {
					b.want(t, http.StatusOK, turn.path("answer"), "")
				}
				mustAnswer(t, done, "one two")
				b.want(t, http.StatusNoContent, "/take?wait=2s", "")
			})
		})
	}
}

func TestChangedTurnIsAskedAnew(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		done := n.run(t.Context(), question())
		turn := n.take(t)
		n.want(t, http.StatusOK, turn.path("answer"), answerHello)
		mustAnswer(t, done, "hello")
		changed := question()
		changed.Message.Parts[0].Content += " edited"
		ctx, stop := context.WithCancelCause(t.Context())
		done = n.run(ctx, changed)
		next := n.take(t)
		stop(errTaken)
		<-done
		done = n.run(t.Context(), question())
		last := n.take(t)
		n.refuses(t, &next)
		n.want(t, http.StatusOK, last.path("answer"), answerHello)
		mustAnswer(t, done, "hello")
	})
}

// TestTakeoverDoesNotEndTheRunOfItsSuccessor is a node that notices late that its job has gone elsewhere.
func TestTakeoverDoesNotEndTheRunOfItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mailbox := NewMemory()
		a, b := newNode(t, mailbox, Settings{}), newNode(t, mailbox, Settings{})
		slow, cancel := context.WithCancel(t.Context())
		left := a.run(slow, question())
		turn := a.take(t)
		again := question()
		again.Attempt = 2
		done := b.run(t.Context(), again)
		synctest.Wait()
		cancel()
		<-left
		a.want(t, http.StatusOK, turn.path("heartbeat"), "")
		a.want(t, http.StatusOK, turn.path("answer"), answerHello)
		mustAnswer(t, done, "hello")
	})
}

// failing is a connection that breaks before a turn is through.
type failing struct{ header http.Header }

func (f *failing) Header() http.Header       { return f.header }
func (f *failing) Write([]byte) (int, error) { return 0, errors.New("connection reset") }
func (f *failing) WriteHeader(int)           {}

func TestUndeliveredTurnIsOfferedAgainAtOnce(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		done := n.run(t.Context(), question())
		begun := time.Now()
		n.handler.ServeHTTP(&failing{http.Header{}}, request(t.Context(), http.MethodPost, "/take", nil))
		turn := n.take(t)
		if waited := time.Since(begun); waited != 0 || turn.Turn.Attempt != 1 {
			t.Errorf("offered again after %s in attempt %d", waited, turn.Turn.Attempt)
		}
		n.want(t, http.StatusOK, turn.path("answer"), answerHello)
		mustAnswer(t, done, "hello")
	})
}

func TestProgramThatWentAwayTakesNothing(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		n.run(t.Context(), question())
		synctest.Wait()
		n.handler.ServeHTTP(&failing{http.Header{}}, request(gone, http.MethodPost, "/take", nil))
		turn := n.take(t)
		n.want(t, http.StatusOK, turn.path("answer"), answerHello)
	})
}

func TestFail(t *testing.T) {
	for body, want := range map[string]fault.Fault{
		`{"retry":true}`: {Public: upstream.Busy},
		`{"retry":true,"after":2.5,"reason":"a\nb"}`:  {Public: upstream.Busy, RetryAfter: 2500 * time.Millisecond},
		`{"retry":false,"reason":"no such thing"}`:    {Public: upstream.Refused, Permanent: true},
		`{"retry":false,"future":{"unknown":"keys"}}`: {Public: upstream.Refused, Permanent: true},
	} {
		bubble(t, Settings{}, func(t *testing.T, n *node) {
			done := n.run(t.Context(), question())
			turn := n.take(t)
			n.want(t, http.StatusOK, turn.path("fail"), body)
			n.want(t, http.StatusOK, turn.path("fail"), body)
			n.want(t, http.StatusConflict, turn.path("answer"), answerHello)
			got := fault.Of((<-done).err)
			if got.Public != want.Public || got.Permanent != want.Permanent || got.RetryAfter != want.RetryAfter {
				t.Errorf("%s: %+v", body, got)
			}
			if strings.Contains(body, `a\nb`) && !strings.HasSuffix(got.Error(), "a b") {
				t.Errorf("the operator reads %q", got.Error())
			}
		})
	}
}

var _ agents.Agent = (*Agent)(nil)
