package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

// TestMailConversationIsBraked: a program that answers every answer gets as many as the operator allows, whatever is killed
// meanwhile, and no notice; the reason is shown.
func TestMailConversationIsBraked(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, "[[agents]]\nname = \"memory\"\nkind = \"echo\"\n[limits]\nmail_thread = [\"3/744h\"]\n")
		answer := func(i int) load.Mail {
			mail := load.Mail{From: "ann@sender.test", To: "memory@inbox.test", MessageID: fmt.Sprintf("loop-%d@sender.test", i), Subject: "Re: Hi", Body: fmt.Sprintf("answer %d", i)}
			if i > 0 {
				mail.Extra = map[string]string{"In-Reply-To": "<loop-0@sender.test>"}
			}
			return mail
		}
		for i := range 3 {
			if refusal := p.put(answer(i)); refusal != "" {
				t.Fatalf("mail %d: %s", i, refusal)
			}
			p.outbox.await(t, answer(i).MessageID)
		}
		if refusal := p.put(answer(3)); refusal != "" {
			t.Fatal(refusal)
		}
		p.awaitIdle()
		p.awaitCount("3")
		p.killed()
		if refusal := p.put(answer(4)); refusal != "" {
			t.Fatal(refusal)
		}
		p.awaitIdle()
		for i := 3; i < 5; i++ {
			if replies, _ := p.outbox.repliesTo(answer(i).MessageID); len(replies) != 0 {
				t.Errorf("mail %d is answered", i)
			}
			if shown := p.inbox("show", answer(i).MessageID); !strings.Contains(shown, "brake:answers_thread: 3 answers in this conversation within 744h") {
				t.Errorf("the reason is not shown:\n%s", shown)
			}
		}
		if n := audited(t, p.server, "brake:*"); n != 1 {
			t.Errorf("%d records of the brake; want 1", n)
		}
	})
}

// TestPausedAgentTakesNothing: each protocol hears its code; the agent works again when the operator lets it.
func TestPausedAgentTakesNothing(t *testing.T) {
	p := startPostWith(t, "", "[[agents]]\nname = \"memory\"\nkind = \"echo\"\n")
	community := startFediverse(t, 1)
	p.inbox("agents", "pause", "memory", "--reason", "a new model")
	community.awaitStatus(p.server, p.Settings.HTTP, "memory", http.StatusServiceUnavailable)
	mail := load.Mail{From: "ann@sender.test", To: "memory@inbox.test", MessageID: "paused@sender.test", Subject: "Hi", Body: "hello?"}
	if refusal := p.put(mail); !strings.HasPrefix(refusal, "550 5.2.1") {
		t.Errorf("mail is answered %s; want 550 5.2.1", refusal)
	}
	if shown := p.inbox("agents", "pause"); !strings.Contains(shown, "memory") || !strings.Contains(shown, "a new model") {
		t.Errorf("who rests: %s", shown)
	}
	p.inbox("agents", "resume", "memory")
	community.awaitStatus(p.server, p.Settings.HTTP, "memory", http.StatusAccepted)
	if reply := p.ask("resumed@sender.test", "hello again"); !strings.Contains(plain(reply.Raw), "hello again") {
		t.Errorf("the answer is %s", plain(reply.Raw))
	}
}

// TestFullDisk: nothing is taken on any protocol before the disk is full, and a balancer is told to ask another node.
func TestFullDisk(t *testing.T) {
	p := startPostWith(t, "", "[[agents]]\nname = \"memory\"\nkind = \"echo\"\n[limits]\nfree_disk = \"1000000TiB\"\n",
		func(settings *instance.Settings) { settings.Unready = true })
	community := startFediverse(t, 1)
	if _, status := community.knock(p.server, p.Settings.HTTP, "memory", 0, "hello?"); status != http.StatusServiceUnavailable {
		t.Errorf("the fediverse hears %d", status)
	}
	for _, to := range []string{"memory@inbox.test", "postmaster@inbox.test"} {
		refusal := p.put(load.Mail{From: "ann@sender.test", To: to, MessageID: "full@sender.test", Subject: "Hi", Body: "hello?"})
		if !strings.HasPrefix(refusal, "452 4.3.1") {
			t.Errorf("mail to %s is answered %s; want 452 4.3.1", to, refusal)
		}
	}
	if found := states(t, p.Instance); len(found) != 0 {
		t.Errorf("taken: %v", found)
	}
	if status := readiness(t, p.server); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz says %d", status)
	}
}
