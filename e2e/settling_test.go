package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// settlingRounds is how many conversations the test has; a thousand take three minutes.
const settlingRounds = 40

// TestCancellingNextToSettling: of three messages of a conversation the second is cancelled at one node while the first is settled at
// another one. The third is always answered, every task ends, and no job stays.
func TestCancellingNextToSettling(t *testing.T) {
	t.Parallel()
	latches := newLatches()
	agent := startScripted(t, func(message normalized.Message) normalized.Response {
		said := textOf(message.Parts)
		latches.pass(said)
		return say("An answer to " + said)
	})
	first := start(t, instance.Settings{Database: postgres(t), Agents: agent.table("memory", "")})
	second := secondNode(t, first)
	token := first.peerToken("ann")

	here := load.A2APeer{URL: first.URL() + "/a2a/memory", Token: token, Client: &http.Client{Timeout: patience}}
	there := load.A2APeer{URL: "http://" + second.Settings.HTTP + "/a2a/memory", Token: token, Client: here.Client}
	send := func(said, context string) load.Task {
		message := map[string]any{"messageId": said, "role": "ROLE_USER", "parts": []map[string]string{{"text": said}}}
		if context != "" {
			message["contextId"] = context
		}
		body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{
			"message": message, "configuration": map[string]any{"returnImmediately": true},
		}})
		if err != nil {
			t.Error(err)
		}
		task, err := here.Send(t.Context(), body)
		if err != nil {
			t.Errorf("send %s: %v", said, err)
		}
		return task
	}

	var mutex sync.Mutex
	var wanted []load.Task // the third of each conversation
	rounds := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for round := range rounds {
				held := latches.hold(fmt.Sprintf("%d first", round))
				begun := send(fmt.Sprintf("%d first", round), "")
				dropped := send(fmt.Sprintf("%d second", round), begun.ContextID)
				last := send(fmt.Sprintf("%d third", round), begun.ContextID)
				<-held.reached
				var both sync.WaitGroup
				both.Go(func() { close(held.open) })
				both.Go(func() {
					if err := there.Cancel(t.Context(), dropped.ID); err != nil && !strings.Contains(err.Error(), "-32002") { // it may have ended
						t.Errorf("cancel: %v", err)
					}
				})
				both.Wait()
				mutex.Lock()
				wanted = append(wanted, last)
				mutex.Unlock()
			}
		})
	}
	for round := range settlingRounds {
		rounds <- round
	}
	close(rounds)
	await.Done(t, workers.Wait, "all messages to be sent")

	eventually(t, "no job is left", func() bool { return first.rows()["jobs"] == 0 })
	for _, task := range wanted {
		if now, err := here.Get(t.Context(), task.ID); err != nil || now.Status.State != completed {
			t.Errorf("the last message of a conversation: %v, %s", err, now.Status.State)
		}
	}
	ended := map[string]int{}
	for _, state := range states(t, first.Instance) {
		ended[state]++
	}
	if ended[exchange.StateAnswered]+ended[exchange.StateCancelled] != 3*settlingRounds || ended[exchange.StateAnswered] < 2*settlingRounds {
		t.Errorf("the messages are %v", ended)
	}
	for _, node := range []*server{first, second} {
		if stranded := node.metric("inbox_jobs_stranded_total"); stranded != 0 {
			t.Errorf("%v jobs were stranded", stranded)
		}
	}
	t.Logf("%d conversations: %v", settlingRounds, ended)
}

// latches let an agent answer messages when the test says so.
type latches struct {
	mu   sync.Mutex
	held map[string]latch
}

type latch struct{ reached, open chan struct{} }

func newLatches() *latches { return &latches{held: map[string]latch{}} }

// hold keeps the answer to a message back.
func (l *latches) hold(said string) latch {
	one := latch{make(chan struct{}), make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[said] = one
	return one
}

func (l *latches) pass(said string) {
	l.mu.Lock()
	one, held := l.held[said]
	delete(l.held, said) // a repeat passes
	l.mu.Unlock()
	if held {
		close(one.reached)
		<-one.open
	}
}
