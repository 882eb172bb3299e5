package e2e

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/e2e/load"
	"inbox/normalized"
	"inbox/operator"
	"inbox/policypart"
)

// linksPeople asks whether two addresses are one person's when told to, and otherwise echoes.
func linksPeople(message normalized.Message) normalized.Response {
	text := textOf(message.Parts)
	switch resolution := message.PolicyResolution; {
	case resolution != nil:
		return say("Linked: " + resolution.Outcome)
	case strings.Contains(text, "link my mail"):
		return demanding(policypart.Part{
			Kind: policypart.ConsentRequired, Code: "identity:link", Title: "Is this you, too?", Message: "Confirm that another address is yours.",
		})
	}
	return say("I heard: " + text)
}

var codeWord = regexp.MustCompile(`link-[a-z0-9]{16}`)

// fediverse is a small community whose persons talk to agents.
type fediverse struct {
	*load.Community
	t        *testing.T
	arrivals chan load.Arrival
	sent     int
}

func startFediverse(t *testing.T, persons int) *fediverse {
	t.Helper()
	f := &fediverse{t: t, arrivals: make(chan load.Arrival, 64)}
	f.Community = newCommunity(t, persons, func(a load.Arrival) { f.arrivals <- a })
	return f
}

// ask mentions the agent and returns the text of the first reply to the note.
func (f *fediverse) ask(s *server, agent string, person int, text string) (load.Mention, string) {
	f.t.Helper()
	f.sent++
	mention := f.Persons[person].Mention(s.Actor(agent), fmt.Sprint(f.sent), text)
	if status := do(f.t, delivery(f.t, f.Persons[person], s.Actor(agent)+"/inbox", mention, load.Signature{})); status != http.StatusAccepted {
		f.t.Fatalf("the mention was answered %d", status)
	}
	return mention, f.reply(mention)
}

// reply waits for the next reply to a note.
func (f *fediverse) reply(mention load.Mention) string {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case arrival := <-f.arrivals:
			if arrival.InReplyTo == mention.NoteID {
				return html.UnescapeString(string(arrival.Body))
			}
		case <-deadline:
			f.t.Fatalf("no reply to %s within %s", mention.NoteID, patience)
		}
	}
}

func TestLinkedPersonHasOneHistory(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		agent := startScripted(t, linksPeople)
		p := startPostWith(t, database, agent.table("memory", "history = \"person\"")+agent.table("doctor", "history = \"person\""))
		community := startFediverse(t, 2)

		p.sendAs("doctor", "mail-0@sender.test", "I have a cold.")
		p.outbox.await(t, "mail-0@sender.test")
		p.ask("mail-1@sender.test", "My cat is called Miezi.")
		community.ask(p.server, "memory", 0, "hello from the fediverse")
		if seen := historyOf(agent.last(t)); strings.Contains(seen, "Miezi") {
			t.Fatalf("before the link the fediverse account sees the mail: %s", seen)
		}

		question, demand := community.ask(p.server, "memory", 0, "please link my mail")
		first := grant(t, findLink(t, demand))
		word := codeWord.FindString(first)
		if word == "" {
			t.Fatalf("the page names no code word:\n%s", first)
		}
		reply := p.ask("mail-2@sender.test", word)
		second := findLink(t, plain(reply.Raw))
		scan(t, second)
		grant(t, second)
		if people := p.inbox("people", "list", "--json"); strings.Contains(people, `"principal"`) {
			t.Errorf("before the asker agreed to the address people list --json prints %s", people)
		}
		last := community.reply(question)
		if !strings.Contains(last, "@ann@sender.test sent the code word") {
			t.Errorf("the asker is asked %s", last)
		}
		grant(t, findLink(t, last))
		if answer := community.reply(question); !strings.Contains(answer, "Linked: granted") {
			t.Errorf("the first conversation goes on with %s", answer)
		}

		community.ask(p.server, "memory", 0, "what is my cat called?")
		if seen := historyOf(agent.last(t)); !strings.Contains(seen, "Miezi") {
			t.Errorf("after the link the mail is not in the history: %s", seen)
		}
		p.ask("mail-3@sender.test", "What did I say elsewhere?")
		if seen := historyOf(agent.last(t)); !strings.Contains(seen, "hello from the fediverse") {
			t.Errorf("after the link the mention is not in the history of the mail: %s", seen)
		}
		community.ask(p.server, "memory", 1, "what is my cat called?")
		if seen := historyOf(agent.last(t)); strings.Contains(seen, "Miezi") {
			t.Errorf("another account sees the history: %s", seen)
		}
		impostor := p.impostor(t, "evil.test")
		if seen := historyOf(p.askAs(agent, impostor, "mail-4@evil.test", "What is my cat called?")); strings.Contains(seen, "Miezi") {
			t.Errorf("an impostor with the same display name sees the history: %s", seen)
		}
		if people := p.inbox("people", "list", "--json"); strings.Count(people, `"principal"`) != 2 || strings.Count(people, `"agent": "memory"`) != 2 {
			t.Errorf("people list --json prints %s; want two sides for memory", people)
		}

		community.ask(p.server, "doctor", 0, "do you know me?")
		if seen := historyOf(agent.last(t)); strings.Contains(seen, "cold") {
			t.Errorf("another agent than the one that asked sees the linked address: %s", seen)
		}

		const account = "mailto:ann@sender.test"
		alone, together := p.inbox("export", "ann@sender.test", "--dry-run"), p.inbox("export", "ann@sender.test", "--dry-run", "--linked")
		if !strings.Contains(alone, "vouches for @ann@sender.test") || !strings.Contains(alone, "left out without --linked") || strings.Contains(together, "left out") {
			t.Errorf("export --dry-run prints\n%s\nand with --linked\n%s", alone, together)
		}
		var previews operator.OfPerson
		if err := json.Unmarshal([]byte(p.inbox("erase", "ann@sender.test", "--dry-run", "--json")), &previews); err != nil || len(previews.Items) != 1 {
			t.Fatalf("erase --dry-run --json: %+v, %v", previews, err)
		}
		if preview := previews.Items[0].Preview; preview == nil || len(preview.Principals) != 1 ||
			!strings.HasSuffix(preview.Principals[0].Principal, account) || len(preview.Linked) != 1 || preview.Linked[0].Agent != "memory" {
			t.Errorf("erase --dry-run --json: %+v", preview)
		}

		if reply := p.ask("mail-5@sender.test", "unlink"); !strings.Contains(plain(reply.Raw), "no longer treats") {
			t.Errorf("the word unlink was answered with %s", plain(reply.Raw))
		}
		community.ask(p.server, "memory", 0, "what is my cat called now?")
		if seen := historyOf(agent.last(t)); strings.Contains(seen, "Miezi") {
			t.Errorf("after the link ended the mail is in the history: %s", seen)
		}
	})
}

func TestLinkWordIsNoUseToItsOwnSide(t *testing.T) {
	t.Parallel()
	agent := startScripted(t, linksPeople)
	p := startPostWith(t, "", agent.table("memory", "history = \"person\""))
	community := startFediverse(t, 2)
	_, demand := community.ask(p.server, "memory", 0, "please link my mail")
	word := codeWord.FindString(grant(t, findLink(t, demand)))
	if _, reply := community.ask(p.server, "memory", 0, word); policyLink.MatchString(reply) {
		t.Errorf("the same account could confirm its own link: %s", reply)
	}
}

func historyOf(message normalized.Message) string {
	var texts []string
	for _, turn := range message.History {
		texts = append(texts, textOf(turn.Parts))
	}
	return strings.Join(texts, "\n")
}

// ask sends a signed mail and waits for its first reply.
func (p *post) ask(id, text string) load.Received {
	p.t.Helper()
	p.sendAs("memory", id, text)
	return p.outbox.await(p.t, id)
}

// sendAs sends a signed mail of Ann's to the agent.
func (p *post) sendAs(agent, id, text string) {
	p.t.Helper()
	mail := load.Mail{From: `"Ann Sender" <ann@sender.test>`, To: agent + "@inbox.test", MessageID: id, Subject: "Hello " + id, Body: text}
	signed, err := p.sender.Sign(mail.Bytes())
	if err != nil {
		p.t.Fatal(err)
	}
	p.send("ann@sender.test", agent+"@inbox.test", signed)
}

// next waits for whatever arrives at the community next.
func (f *fediverse) next(t *testing.T) string {
	t.Helper()
	select {
	case arrival := <-f.arrivals:
		return html.UnescapeString(string(arrival.Body))
	case <-time.After(patience):
		t.Fatalf("nothing arrived within %s", patience)
	}
	return ""
}

// impostor is a mail domain of another party.
func (p *post) impostor(t *testing.T, domain string) load.MailDomain {
	t.Helper()
	other, err := load.NewMailDomain(p.names, domain)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// askAs sends a mail under the same display name from another domain and returns what the agent was asked.
func (p *post) askAs(agent *scripted, domain load.MailDomain, id, text string) normalized.Message {
	p.t.Helper()
	mail := load.Mail{From: `"Ann Sender" <ann@` + domain.Name + `>`, To: "memory@inbox.test", MessageID: id, Subject: "Hello", Body: text}
	signed, err := domain.Sign(mail.Bytes())
	if err != nil {
		p.t.Fatal(err)
	}
	p.send("ann@"+domain.Name, "memory@inbox.test", signed)
	p.outbox.await(p.t, id)
	asked := agent.questions()
	place := slices.IndexFunc(asked, func(m normalized.Message) bool { return m.ID == id })
	if place < 0 {
		p.t.Fatalf("the agent was not asked about %s", id)
	}
	return asked[place]
}
