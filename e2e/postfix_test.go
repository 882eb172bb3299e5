package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/load"
	"inbox/exchange"
)

const ann = "ann@sender.example"

func question(from, id string) load.Mail {
	return load.Mail{From: "Ann Sender <" + from + ">", To: "echo@inbox.example", MessageID: id, Subject: "A question", Body: "Dear agent,\nwhat is this?"}
}

// TestPostfix talks with a real mail system in both directions, under TLS that both sides check.
func TestPostfix(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		w := newTown(t, database)
		w.part(t, "question and answer stay in one thread", (*town).converse)
		w.part(t, "what is refused comes back to its author", (*town).refuse)
		w.part(t, "a mailbox that is not there is not written to again", (*town).missMailbox)
		w.part(t, "a mailbox that is found missing later is not written to again", (*town).missMailboxLater)
		w.part(t, "MTA-STS is enforced", (*town).enforce)
		w.part(t, "Postfix is down for a while", (*town).outlastPostfix)
		w.part(t, "the server is down for a while", (*town).outlastServer)
	})
}

func (w *town) part(t *testing.T, name string, run func(*town)) {
	t.Run(name, func(t *testing.T) {
		outer := w.t
		w.t = t
		defer func() { w.t = outer }()
		run(w)
	})
}

func (w *town) converse() {
	const first, second = "first@sender.example", "second@sender.example"
	w.hand(ann, "echo@inbox.example", question(ann, first))
	answer := w.awaitAnswer(ann, first)
	if got := answer.Header.Get("References"); got != "<"+first+">" {
		w.t.Errorf("References is %q", got)
	}
	if got := answer.Header.Get("Authentication-Results"); !strings.Contains(got, "dkim=pass") || !strings.Contains(got, "header.d=inbox.example") {
		w.t.Errorf("OpenDKIM says %q", got)
	}
	w.dkimverify(answer.Raw)
	w.checkProof(first)
	if sent := w.awaitDeliveries("delivered", 1); !strings.HasPrefix(sent[0].Reason, "mx.sender.example[127.0.0.1] TLS 1.3: 2.0.0 Ok: queued as ") {
		w.t.Errorf("the operator reads %q", sent[0].Reason)
	}
	if !strings.Contains(w.postfix.Log(), "Verified TLS connection established to mx.inbox.example[127.0.0.1]") {
		w.t.Error("Postfix did not verify our certificate")
	}

	again := question(ann, second)
	again.Subject = answer.Header.Get("Subject")
	again.Extra = map[string]string{"In-Reply-To": "<" + answer.Field("Message-ID") + ">", "References": "<" + first + "> <" + answer.Field("Message-ID") + ">"}
	again.Body = "Größere Füße: 🦶"
	w.hand(ann, "echo@inbox.example", again)
	last := w.awaitAnswer(ann, second)
	if got, want := strings.Fields(last.Header.Get("References")), []string{first, answer.Field("Message-ID"), second}; fmt.Sprint(got) != fmt.Sprintf("[<%s> <%s> <%s>]", want[0], want[1], want[2]) {
		w.t.Errorf("References of the second answer: %v", got)
	}
	if !strings.Contains(plain(bytes.ReplaceAll(last.Raw, []byte("\n"), []byte("\r\n"))), again.Body) {
		w.t.Errorf("the echo lost the text:\n%s", last.Raw)
	}
	w.dkimverify(last.Raw)
	threads, err := w.Column(w.t.Context(), "SELECT DISTINCT thread_id FROM turns WHERE native_id IN ($1, $2)", first, second)
	if err != nil || len(threads) != 1 {
		w.t.Errorf("both questions are in threads %v (%v); want one", threads, err)
	}
}

// checkProof demands that the record of a mail says all that Postfix and OpenDKIM proved.
func (w *town) checkProof(id string) {
	w.t.Helper()
	stored, err := w.Column(w.t.Context(), "SELECT message FROM turns WHERE native_id = $1", id)
	if err != nil || len(stored) != 1 {
		w.t.Fatalf("stored message of %s: %d, %v", id, len(stored), err)
	}
	var message struct {
		Sender struct {
			AuthMethod string `json:"auth_method"`
			Verified   bool
			Profile    struct {
				Extensions struct {
					Email struct {
						DKIM          []struct{ D, S, Result string }
						SPF, DMARC    struct{ Result, Domain string }
						IP, HELO, TLS string
						Addressed     bool
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(stored[0]), &message); err != nil {
		w.t.Fatal(err)
	}
	proof := message.Sender.Profile.Extensions.Email
	got := fmt.Sprintln(message.Sender.AuthMethod, message.Sender.Verified, proof)
	want := "email-dmarc true {[{sender.example load pass}] {pass sender.example} {pass sender.example} 127.0.0.1 mx.sender.example TLS 1.3 true}\n"
	if got != want {
		w.t.Errorf("the record of the sender says\n%s; want\n%s", got, want)
	}
}

func (w *town) refuse() {
	unknown := question(ann, "unknown@sender.example")
	unknown.To = "nobody@inbox.example"
	w.hand(ann, unknown.To, unknown)
	spoofed := question("chief@bank.example", "spoofed@bank.example")
	w.hand(ann, spoofed.To, spoofed)
	w.awaitLetter(ann, "Undelivered Mail Returned to Sender", "<nobody@inbox.example>", "550 5.1.1")
	w.awaitLetter(ann, "Undelivered Mail Returned to Sender", "chief@bank.example", "550 5.7.26")
	turns, err := w.Column(w.t.Context(), "SELECT native_id FROM turns WHERE native_id IN ($1, $2)", unknown.MessageID, spoofed.MessageID)
	if err != nil || len(turns) > 0 {
		w.t.Errorf("refused mails were stored: %v (%v)", turns, err)
	}
}

func (w *town) missMailbox() {
	const stray = "stray@sender.example"
	w.hand(stray, "echo@inbox.example", question(stray, "stray-1@sender.example"))
	w.awaitSuppressed(stray)
	if dead := w.awaitDeliveries("dead", 1); !strings.Contains(dead[0].Reason, "5.1.1") {
		w.t.Errorf("the delivery is dead because of %q", dead[0].Reason)
	}
}

func (w *town) missMailboxLater() {
	const late = "late@sender.example"
	w.hand(late, "echo@inbox.example", question(late, "late-1@sender.example"))
	w.awaitSuppressed(late)
	if dead := w.awaitDeliveries("dead", 2); !strings.Contains(dead[0].Reason, "5.1.1") {
		w.t.Errorf("the delivery is dead because of %q", dead[0].Reason)
	}
	w.hand(late, "echo@inbox.example", question(late, "late-2@sender.example"))
	if dead := w.awaitDeliveries("dead", 3); !strings.Contains(dead[0].Reason, "suppressed") {
		w.t.Errorf("the second answer: %q", dead[0].Reason)
	}
}

func (w *town) awaitSuppressed(address string) {
	w.t.Helper()
	eventually(w.t, address+" is suppressed", func() bool {
		for _, one := range w.suppressed() {
			if one.Address == address && one.Kind == exchange.FailureHard {
				return true
			}
		}
		return false
	})
}

func (w *town) enforce() {
	for _, d := range districts[1:] {
		w.hand("ann@"+d.domain, "echo@inbox.example", question("ann@"+d.domain, "first@"+d.domain))
	}
	waiting := w.awaitDeliveries("retry", len(districts)-1)
	for _, want := range []string{"valid for mx.sender.example, not mx.astray.example", "signed by unknown authority", "offers no STARTTLS"} {
		if !slices.ContainsFunc(waiting, func(one sending) bool {
			return strings.Contains(one.Reason, want) && strings.Contains(one.Reason, "MTA-STS")
		}) {
			w.t.Errorf("no delivery waits because of MTA-STS and %q: %v", want, waiting)
		}
	}
	for _, d := range districts[1:] {
		if found := w.letters("ann@" + d.domain); len(found) > 0 {
			w.t.Errorf("%s got a mail although %s", d.domain, d.about)
		}
	}
}

func (w *town) outlastPostfix() {
	const id = "outage@sender.example"
	if err := w.postfix.Stop(); err != nil {
		w.t.Fatal(err)
	}
	signed, err := w.sender.Sign(question(ann, id).Bytes())
	if err != nil {
		w.t.Fatal(err)
	}
	bring(w.t, w.Settings.SMTP, ann, "echo@inbox.example", signed)
	eventually(w.t, "the answer waits for Postfix", func() bool {
		for _, one := range w.deliveries("retry") {
			if strings.HasPrefix(one.Reason, "sender.example: ") && strings.Contains(one.Reason, "refused") {
				return true
			}
		}
		return false
	})
	if err := w.postfix.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.awaitAnswer(ann, id)
	w.answeredOnce(id)
}

func (w *town) outlastServer() {
	const id = "down@sender.example"
	if err := w.Kill(); err != nil {
		w.t.Fatal(err)
	}
	w.hand(ann, "echo@inbox.example", question(ann, id))
	eventually(w.t, "Postfix has tried in vain", func() bool {
		return strings.Contains(w.postfix.Log(), "Connection refused")
	})
	w.start()
	w.awaitAnswer(ann, id)
	w.answeredOnce(id)
}

// answeredOnce asks another question, whose answer comes after whatever else was to come.
func (w *town) answeredOnce(id string) {
	w.t.Helper()
	const another = "afterwards-"
	w.hand(ann, "echo@inbox.example", question(ann, another+id))
	w.awaitAnswer(ann, another+id)
	if found := w.answers(ann, id); len(found) != 1 {
		w.t.Errorf("%d answers to %s are in the mailbox; want 1", len(found), id)
	}
}
