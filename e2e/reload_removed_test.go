package e2e

import (
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// TestReloadRemovesABusyAgent: what an agent that is removed has under way ends as the operator reads in docs/operating.md: its run with
// its own answer, what waits for a person or in the queue with a reason, an answer that waits for its recipient at the recipient. What
// waits in a pause finds the agent again that comes back. Nothing is answered twice.
func TestReloadRemovesABusyAgent(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		asked, release := make(chan struct{}, 1), make(chan struct{})
		agent := startScripted(t, func(message normalized.Message) normalized.Response {
			if strings.Contains(textOf(message.Parts), "slow") {
				asked <- struct{}{}
				<-release
			}
			return refunds(message)
		})
		busy := agent.table("shop", "") + agent.table("quiet", "") + agent.table("back", "")

		var way *gate
		p := startPostWith(t, database, steady+busy, func(settings *instance.Settings) { way, settings.Smarthost = newGate(t, settings.Smarthost) })
		bring := func(to, word string) (id string) {
			t.Helper()
			id = word + "-" + to + "@sender.test"
			if refusal := p.put(load.Mail{From: "ann@sender.test", To: to + "@inbox.test", MessageID: id, Subject: "Hello", Body: word}); refusal != "" {
				t.Fatalf("mail %s: %s", id, refusal)
			}
			return id
		}

		way.set(true)
		undelivered := bring("shop", "undelivered")
		p.awaitDeliveries("retry", 1)
		parked := bring("shop", "refund")
		p.waiting(parked)
		flying := bring("shop", "slow")
		await.Receive(t, asked, "the run that is under way")
		p.inbox("pause", "--all")
		eventually(t, "all agents rest", func() bool { _, body := p.readiness(); return strings.Contains(body, `"agents":"paused"`) })
		queued, returning := bring("quiet", "queued"), bring("back", "queued")

		p.configure(steady)
		if answer := p.reload(); strings.Join(answer.Changed, " ") != "agents[back] agents[quiet] agents[shop]" {
			t.Fatalf("%+v", answer)
		}
		if refusal := p.put(load.Mail{From: "ann@sender.test", To: "shop@inbox.test", MessageID: "late@sender.test", Subject: "Hello", Body: "hello"}); !strings.Contains(refusal, "550") {
			t.Errorf("mail to a removed agent: %q", refusal)
		}
		close(release)
		if state := p.state(flying); state != exchange.StateAnswered {
			t.Errorf("the run under way is %s", state)
		}

		p.configure(steady + agent.table("back", ""))
		p.reload()
		p.inbox("approvals", "approve", "--yes", p.approvals()[0].ID)
		p.inbox("resume", "--all")
		for _, id := range []string{parked, queued} {
			eventually(t, id+" is failed with a reason", func() bool {
				return strings.Contains(p.inbox("show", id), "the agent is not configured any more")
			})
			if state := p.state(id); state != exchange.StateFailed {
				t.Errorf("%s is %s", id, state)
			}
		}
		if state := p.state(returning); state != exchange.StateAnswered {
			t.Errorf("what waited for the agent that came back is %s", state)
		}

		ended := p.deliveries("retry")
		for _, one := range ended { // only those that have ended are begun again at once; one that is tried at this moment cannot be cancelled
			eventually(t, one.ID+" is cancelled", func() bool { _, err := p.Run(t.Context(), "deliveries", "cancel", one.ID); return err == nil })
		}
		way.set(false)
		for _, one := range ended {
			p.inbox("deliveries", "retry", one.ID)
		}
		for id, want := range map[string]string{undelivered: "undelivered", flying: "slow", returning: "queued", parked: "", queued: ""} {
			if text := plain(p.outbox.await(t, id).Raw); strings.Contains(text, "I heard") != (want != "") || !strings.Contains(text, want) {
				t.Errorf("the answer to %s is %q", id, text)
			}
		}
		p.awaitIdle()
		for _, id := range []string{undelivered, flying, returning, parked, queued} {
			if replies, _ := p.outbox.repliesTo(id); len(replies) != 1 {
				t.Errorf("%s got %d answers", id, len(replies))
			}
		}
	})
}
