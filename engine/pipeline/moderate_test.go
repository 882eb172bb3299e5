package pipeline_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

// blocks is a Moderator that a test changes while turns run.
type blocks struct {
	mu      sync.Mutex
	effects map[string]string // address → effect
	stopped map[string]time.Time
}

func newBlocks() *blocks {
	return &blocks{effects: map[string]string{}, stopped: map[string]time.Time{}}
}

func (b *blocks) set(address, effect string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.effects[address] = effect
}

func (b *blocks) Sender(sender normalized.Sender) moderation.Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	if effect := b.effects[sender.Address.String()]; effect != "" {
		return moderation.Verdict{Effect: effect, Code: "block:address", Reason: "blocked by the operator: " + sender.Address.String()}
	}
	return moderation.Verdict{}
}

func (b *blocks) Stopped(agent, principal string) (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	since, is := b.stopped[agent+" "+principal]
	return since, is
}

func (b *blocks) Note(entry exchange.ListEntry, removed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.stopped, entry.Agent+" "+entry.Target); !removed {
		b.stopped[entry.Agent+" "+entry.Target] = entry.CreatedAt
	}
}

// TestBlockedSenders: refused at the door with an audit row and no turn; held where the entry says so; what was accepted
// before is cancelled with the reason, waiting or running, and nothing is sent.
func TestBlockedSenders(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		lists := newBlocks()
		begun, release := make(chan struct{}, 1), make(chan struct{})
		letGo := sync.OnceFunc(func() { close(release) })
		defer letGo()
		front := &script{name: "echo", answer: func(turn agents.Turn) normalized.Response {
			if turn.Message.ID == "slow@peer.test" {
				begun <- struct{}{}
				<-release
			}
			return texts("hi")
		}}
		e := composed(t, url, func(o *pipeline.Options) { o.Moderator = lists }, front)
		slow := from("ana", "slow", "t")
		running := e.receive(t, slow)
		await.Receive(t, begun, "the run of the slow message")
		behind := e.receive(t, from("ana", "behind", "t")) // waits for the first of its thread
		lists.set(slow.Message.Sender.Address.String(), exchange.EffectRefuse)
		e.pipeline.CancelRunning(t.Context())
		letGo()
		for _, id := range []string{running.TurnID, behind.TurnID} {
			if turn := e.ends(t, id, exchange.StateCancelled); !strings.Contains(turn.Reason, "blocked by the operator") {
				t.Errorf("%s: %s", turn.Message.ID, turn.Reason)
			}
		}
		if _, err := e.pipeline.Receive(t.Context(), from("ana", "again", "t")); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%v, want a refusal", err)
		}
		if records := e.audits(t, "block:address"); len(records) != 1 {
			t.Errorf("audit %+v", records)
		}
		held := from("bea", "m", "u")
		lists.set(held.Message.Sender.Address.String(), exchange.EffectHold)
		if receipt := e.receive(t, held); receipt.State != exchange.StateHeld {
			t.Errorf("held: %s", receipt.State)
		}
		if e.peer.count() != 0 {
			t.Errorf("%d deliveries", e.peer.count())
		}
	})
}
