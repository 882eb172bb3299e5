package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/normalized"
	"inbox/policypart"
)

//contract:shows message-23 message-32 message-33
func TestConsentByMailResumesTheQuestion(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		agent := startScripted(t, asksForConsent)
		p := startPostWith(t, database, agent.table("booker", ""))
		const id = "booking@sender.test"
		p.send("ann@sender.test", "booker@inbox.test", p.dkimsign(p.mail(id, "booker@inbox.test", map[string]string{"Cc": "bob@sender.test"})))
		demand := p.outbox.await(t, id)
		if got := strings.Join(demand.To, " "); got != "ann@sender.test" || demand.Header.Get("Cc") != "" {
			t.Errorf("the demand went to %q, Cc %q; want the sender alone", got, demand.Header.Get("Cc"))
		}
		text := plain(demand.Raw)
		link := findLink(t, text)
		if !strings.Contains(text, "Answer here: "+link) {
			t.Errorf("the link does not stand on its own line behind its label:\n%s", text)
		}
		scan(t, link)
		if found := states(t, p.Instance); !slices.Equal(found, []string{"waiting"}) {
			t.Fatalf("after a scanner the turns are %v; want one that waits", found)
		}
		if secrets, err := p.Column(t.Context(), "SELECT response FROM replies"); err != nil || strings.Contains(strings.Join(secrets, ""), link) {
			t.Errorf("the link with its secret is stored (%v)", err)
		}
		grant(t, link)
		answer := p.awaitMail(func(r load.Received) bool { return strings.Contains(plain(r.Raw), "table is booked") })
		if answer.Field("In-Reply-To") != id {
			t.Errorf("the answer is In-Reply-To %q; want the question %s", answer.Field("In-Reply-To"), id)
		}
		if answer.Header.Get("Subject") != demand.Header.Get("Subject") {
			t.Errorf("the answer has the subject %q, the demand %q", answer.Header.Get("Subject"), demand.Header.Get("Subject"))
		}
		if replies, _ := p.outbox.repliesTo(id); len(replies) != 2 {
			t.Errorf("%d mails came; want the demand and the answer", len(replies))
		}
		if resolution := agent.last(t).PolicyResolution; resolution == nil || resolution.InReplyToState != "table-7" || resolution.ResolvedBy == nil ||
			string(resolution.Data["com.example.table"]) != `{"seats":2}` {
			t.Errorf("the agent got the resolution %+v; want one with the state and the data of its own demand", resolution)
		}
		if strings.Contains(string(demand.Raw), "table-7") {
			t.Error("the asker sees the state that the agent issued")
		}
		if status, _ := page(t, http.MethodPost, link, map[string][]string{"decision": {"grant"}}); status < http.StatusBadRequest {
			t.Errorf("the same link granted twice: %d", status)
		}
		if codes := auditCodes(t, p.Instance); !slices.Contains(codes, "state:used") {
			t.Errorf("the second use is not on record: %v", codes)
		}
		if asked := agent.questions(); len(asked) != 2 {
			t.Errorf("the agent was asked %d times; want 2", len(asked))
		}
	})
}

func TestDeclinedConsentIsToldOnce(t *testing.T) {
	t.Parallel()
	agent := startScripted(t, asksForConsent)
	p := startPostWith(t, "", agent.table("booker", ""))
	const id = "no@sender.test"
	p.send("ann@sender.test", "booker@inbox.test", p.dkimsign(p.mail(id, "booker@inbox.test", nil)))
	link := findLink(t, plain(p.outbox.await(t, id).Raw))
	if status, body := page(t, http.MethodPost, link, map[string][]string{"decision": {"decline"}}); status >= http.StatusBadRequest {
		t.Fatalf("declining answered %d:\n%s", status, body)
	}
	eventually(t, "the last word is sent", func() bool {
		replies, _ := p.outbox.repliesTo(id)
		return len(replies) == 2
	})
	if state := p.state(id); state != "refused" {
		t.Errorf("the turn is %s; want refused", state)
	}
	if asked := agent.questions(); len(asked) != 1 {
		t.Errorf("the agent was asked %d times; want 1", len(asked))
	}
}

func TestConsentOnTheFediverseIsPrivate(t *testing.T) {
	peer := startFedify(t)
	onDatabasesInTurn(t, func(t *testing.T, database string) {
		agent := startScripted(t, asksForConsent)
		s := start(t, peer.network.settings(t, instance.Settings{Database: database, Agents: agent.table("booker", "")}))
		question := peer.mention("@booker@"+s.Settings.Public, "public", "book a table, please")
		arrival := peer.await("the demand", answers(question.Note))
		demand := readNote(t, arrival)
		addressed := slices.Concat(demand.To, demand.Cc, demand.Object.To, demand.Object.Cc)
		if !arrival.Verified || len(addressed) == 0 || slices.ContainsFunc(addressed, func(to string) bool { return to != peer.Actor }) {
			t.Errorf("the demand is addressed to %v (verified %v); want the asker alone", addressed, arrival.Verified)
		}
		link := findLink(t, demand.Object.Content)
		if status, _ := page(t, http.MethodGet, demand.Object.ID, nil); status == http.StatusOK {
			t.Error("anybody can read the note with the demand")
		}
		scan(t, link)
		grant(t, link)
		peer.await("the answer", func(a arrived) bool {
			return answers(question.Note)(a) && strings.Contains(string(a.Activity), "table is booked")
		})
	})
}

func TestConsentOverA2ACompletesTheTask(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		agent := startScripted(t, asksForConsent)
		s := start(t, instance.Settings{Database: database, Agents: agent.table("booker", "")})
		peer := s.a2aPeer("booker", "ann")
		task, err := peer.Send(t.Context(), load.SendBody("message-1", "book a table", false))
		if err != nil {
			t.Fatal(err)
		}
		if task.Status.State != "TASK_STATE_AUTH_REQUIRED" {
			t.Fatalf("the task is %s; want AUTH_REQUIRED", task.Status.State)
		}
		link := findLink(t, texts(task))
		scan(t, link)
		grant(t, link)
		eventually(t, "the task completes without a new message", func() bool {
			if task, err = peer.Get(t.Context(), task.ID); err != nil {
				t.Fatal(err)
			}
			return task.Status.State == completed
		})
		if text := texts(task); !strings.Contains(text, "table is booked") {
			t.Errorf("the task says %q", text)
		}
	})
}

// a2aPeer mints a token and returns a client of the agent.
func (s *server) a2aPeer(agent, name string) load.A2APeer {
	s.t.Helper()
	token, err := s.Token(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return load.A2APeer{URL: s.URL() + "/a2a/" + agent, Token: token, Client: &http.Client{Timeout: patience}}
}

func TestPolicyAddressOffOurOriginIsRemoved(t *testing.T) {
	t.Parallel()
	agent := startScripted(t, func(normalized.Message) normalized.Response {
		return demanding(policypart.Part{Kind: policypart.Forbidden, Code: "plan:free", Message: "Only for members.", URL: "https://phisher.example/policy/join"})
	})
	s := start(t, instance.Settings{Agents: agent.table("members", "")})
	task, err := s.a2aPeer("members", "ann").Send(t.Context(), load.SendBody("message-1", "let me in", false))
	if err != nil {
		t.Fatal(err)
	}
	if text := texts(task); !strings.Contains(text, "Only for members.") || strings.Contains(text, "phisher") {
		t.Errorf("the asker reads %q", text)
	}
	if codes := auditCodes(t, s.Instance); !slices.Contains(codes, "policy:url_removed") {
		t.Errorf("on record: %v; want policy:url_removed", codes)
	}
	stored, err := s.Column(t.Context(), "SELECT response FROM replies")
	if err != nil || !strings.Contains(strings.Join(stored, ""), `plan:free:url-removed`) {
		t.Errorf("stored: %v (%v); want the code with url-removed", stored, err)
	}
}

func TestDemandOutlivesTheProcess(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		agent := startScripted(t, asksForConsent)
		p := startPostWith(t, database, agent.table("booker", ""))
		const id = "patient@sender.test"
		p.send("ann@sender.test", "booker@inbox.test", p.dkimsign(p.mail(id, "booker@inbox.test", nil)))
		link := findLink(t, plain(p.outbox.await(t, id).Raw))
		p.killed()
		scan(t, link)
		grant(t, link)
		p.killed()
		p.awaitMail(func(r load.Received) bool { return strings.Contains(plain(r.Raw), "table is booked") })
		// A mail that left just before the process died comes again under the same id.
		ids := map[string]bool{}
		replies, _ := p.outbox.repliesTo(id)
		for _, one := range replies {
			ids[one.Field("Message-ID")] = true
		}
		if len(ids) != 2 {
			t.Errorf("%d different mails came; want the demand and one answer", len(ids))
		}
	})
}
