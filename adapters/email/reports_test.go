package email

import (
	"context"
	"encoding/base32"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"inbox/adapters/email/emailtest"
	"inbox/exchange"
	"inbox/internal/capability"
	"inbox/internal/fault"
	"inbox/normalized"
)

// oldReturnPath returns the token of a return path that was made before it had a recipient (decision 0130).
func oldReturnPath(t *testing.T, state KeyState, delivery string) string {
	t.Helper()
	key, err := loadTokenKey(state)
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.MustParse(delivery)
	written := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(id[:])
	return strings.ToLower(written) + capability.Mint(key, capability.Claim{What: string(id[:]), Form: capability.Short, Former: true})
}

// office knows deliveries and what came of them.
type office struct {
	mu         sync.Mutex
	recipients map[string][]string // by delivery
	byMessage  map[string]string   // Message-ID and domain to delivery
	bounces    []exchange.Bounce
	failures   []exchange.MailFailure
	lifted     []string
	suppressed []exchange.Suppression
	broken     error // of MailFailed
}

func (o *office) Bounced(_ context.Context, bounce exchange.Bounce) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bounces = append(o.bounces, bounce)
	return nil
}

func (o *office) DeliveryOf(_ context.Context, messageID, domain string) (string, bool, error) {
	id, found := o.byMessage[messageID+" "+domain]
	return id, found, nil
}

func (o *office) DestinationOf(_ context.Context, id string) (exchange.Destination, error) {
	recipients, found := o.recipients[id]
	if !found {
		return exchange.Destination{}, fault.New(fault.NotFound, "no such delivery")
	}
	data, err := json.Marshal(destination{Recipients: recipients})
	return exchange.Destination{Data: data}, err
}

func (o *office) Suppressed(_ context.Context, addresses []string) ([]exchange.Suppression, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []exchange.Suppression
	for _, one := range o.suppressed {
		if slices.Contains(addresses, one.Address) {
			found = append(found, one)
		}
	}
	return found, nil
}

func (o *office) MailFailed(_ context.Context, failure exchange.MailFailure) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken != nil {
		return false, o.broken
	}
	o.failures = append(o.failures, failure)
	return failure.Kind != exchange.FailureSoft, nil
}

func (o *office) Unsuppress(_ context.Context, address string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := len(o.suppressed)
	o.suppressed = slices.DeleteFunc(o.suppressed, func(one exchange.Suppression) bool { return one.Address == address })
	o.lifted = append(o.lifted, address)
	return len(o.suppressed) < before, nil
}

const (
	oneDelivery  = "01936f2a-0000-7000-8000-000000000101"
	bothDelivery = "01936f2a-0000-7000-8000-000000000102"
)

func startOffice(t *testing.T, change func(*Options)) (*setup, *office) {
	t.Helper()
	o := &office{
		recipients: map[string][]string{oneDelivery: {"ann@sender.test"}, bothDelivery: {"Ann@sender.test", "bob@sender.test"}},
		byMessage:  map[string]string{"r1@inbox.test sender.test": oneDelivery},
	}
	s := start(t, func(options *Options) {
		options.Deliveries, options.Suppressions = o, o
		if change != nil {
			change(options)
		}
	})
	return s, o
}

// TestAReportIsTakenWhole acknowledges nothing of which a half was lost.
func TestAReportIsTakenWhole(t *testing.T) {
	s, o := startOffice(t, nil)
	token, _ := s.adapter.outbox.tokens.ReturnPath(oneDelivery, "ann@sender.test")
	to := []string{"bounce+" + token + "@inbox.test"}
	report := emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1"))
	o.with(func() { o.broken = errors.New("database is locked") })
	w := s.greet()
	w.send("", to, report, "451 4.3.0")
	o.with(func() { o.broken = nil })
	w.send("", to, report, "250")
	o.with(func() {
		if len(o.failures) != 1 || len(o.bounces) != 1 {
			t.Errorf("failures %+v, bounces %+v", o.failures, o.bounces)
		}
	})
}

func (o *office) with(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

// sentBy writes another author into a report.
func sentBy(author, report string) string {
	return strings.Replace(report, "From: Mail Delivery <mailer-daemon@sender.test>", "From: "+author, 1)
}

func TestReportsAreMatched(t *testing.T) {
	failedAnn := []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}}
	aboutAnn := func() string { // as of a server whose reports are not signed by this test
		return strings.Replace(emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1")), "<mailer-daemon@sender.test>", "<MAILER-DAEMON@sender.test>", 1)
	}
	for name, c := range map[string]struct {
		delivery  string // whose bounce address it comes to; empty = the given one
		to        string
		mail      func(s *setup) string
		signed    bool
		bounce    []exchange.Bounce
		failures  []string // address and kind
		forAgents int      // messages that agents get, too
	}{
		"hard": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1"))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test hard"}},
		"soft": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.2.2"))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.2.2 550 5.2.2 no mailbox"}},
			failures: []string{"ann@sender.test soft"}},
		"about another address": {delivery: oneDelivery, mail: func(*setup) string { return emailtest.Report("", emailtest.ReportOn("x@far.test", "failed", "5.1.1")) }},
		"about an address that cannot be read": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("the person you wrote to", "failed", "5.1.1"))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test hard"}},
		"about the other recipient": {delivery: bothDelivery, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1"))
		}},
		"gave up after delays": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "4.4.7"))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 4.4.7 550 4.4.7 no mailbox"}},
			failures: []string{"ann@sender.test soft"}},
		"by policy": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.7.1"))
		},
			bounce: []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.7.1 550 5.7.1 no mailbox"}}},
		"delayed": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("ann@sender.test", "delayed", "4.4.1"))
		},
			bounce: []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryDelayed, Reason: "delayed: 4.4.1 550 4.4.1 no mailbox"}}},
		"delivered, relayed": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("ann@sender.test", "delivered", "2.0.0"), emailtest.ReportOn("ann@sender.test", "relayed", "2.0.0"))
		}},
		"one of two": {delivery: bothDelivery, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("bob@sender.test", "failed", "5.1.1"), emailtest.ReportOn("stranger@sender.test", "failed", "5.1.1"))
		},
			bounce:   []exchange.Bounce{{DeliveryID: bothDelivery, Recipient: "bob@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"bob@sender.test hard"}},
		"an absence notice": {delivery: oneDelivery, mail: func(*setup) string { return emailtest.Letter("I am away.", "Auto-Submitted: auto-replied") }},
		"X-Failed-Recipients": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Letter("x", "Subject: Mail failed", "X-Failed-Recipients: ann@sender.test")
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.0.0 Mail failed"}},
			failures: []string{"ann@sender.test soft"}},
		"Exim, whose status says nothing": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Report("", "Action: failed\nFinal-Recipient: rfc822;ann@sender.test\nStatus: 5.0.0\nRemote-MTA: dns; mx.sender.test\nDiagnostic-Code: smtp; 550-5.1.1 The email account\n 550 5.1.1 does not exist 192.0.2.1\n")
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550-5.1.1 The email account 550 5.1.1 does not exist 192.0.2.1"}},
			failures: []string{"ann@sender.test hard"}},
		"without a status": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Report("", "Final-Recipient: rfc822; <ann@sender.test>\nAction: Failed (bounced)\nDiagnostic-Code: X-Notes; no match in 5.1.2 directory\n")
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.2 no match in 5.1.2 directory"}},
			failures: []string{"ann@sender.test hard"}},
		"qmail": {delivery: bothDelivery, mail: func(*setup) string {
			return emailtest.Letter("Hi. This is the qmail-send program at sender.test.\nI'm afraid I wasn't able to deliver your message.\n\n<bob@sender.test>:\nSorry, no mailbox here by that name. (#5.1.1)\n\n<stranger@sender.test>:\nGone.\n\n"+
				"--- Below this line is a copy of the message.\n\nReturn-Path: <x@inbox.test>\n\n<ann@sender.test>:\nnot a report", "From: MAILER-DAEMON@sender.test", "Subject: failure notice", "Message-ID: <q@sender.test>")
		},
			bounce:   []exchange.Bounce{{DeliveryID: bothDelivery, Recipient: "bob@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 Sorry, no mailbox here by that name. (#5.1.1)"}},
			failures: []string{"bob@sender.test soft"}},
		"a letter that greets like qmail": {delivery: oneDelivery, mail: func(*setup) string {
			return emailtest.Letter("Hi. This is Ann, I am away.", "Auto-Submitted: auto-replied")
		}},
		"unsigned, of a strict domain": {
			delivery: oneDelivery, mail: func(*setup) string { return "unsigned" },
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test soft"},
		},
		"without an author": {
			delivery: oneDelivery, mail: func(*setup) string { return "no author" },
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test soft"},
		},
		"without an author, from a server of the organization": {
			delivery: oneDelivery, mail: func(s *setup) string {
				s.names.Text("client.sender.test", "v=spf1 ip4:127.0.0.1 -all")
				return "no author"
			},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test hard"},
		},
		"without an author, from a server that may send for the domain": {
			delivery: oneDelivery, mail: func(s *setup) string {
				s.names.Text("sender.test", "v=spf1 ip4:127.0.0.1 -all")
				return "no author"
			},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test hard"},
		},
		"signed by another organization": {
			delivery: oneDelivery, mail: func(s *setup) string {
				_, value := DNSRecord("other.test", "s1", emailtest.SenderKey())
				s.names.Text("s1._domainkey.other.test", value)
				mail := strings.Replace(emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1")), "<mailer-daemon@sender.test>", "<mailer-daemon@other.test>", 1)
				return emailtest.SignedAs(t, mail, "other.test", "s1", emailtest.SenderKey())
			},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test soft"},
		},
		"a return path of an older version": {to: "old", mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1"))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test soft"}},
		"by the envelope id": {to: "echo@inbox.test", mail: func(s *setup) string {
			token, _ := s.adapter.outbox.tokens.ReturnPath(oneDelivery, "ann@sender.test")
			return emailtest.Report("Original-Envelope-Id: "+token+"\n", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1"))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test hard"}, forAgents: 1},
		"by the Message-ID, proven": {to: "echo@inbox.test", signed: true, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1"))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test soft"}, forAgents: 1},
		"by the Message-ID, about somebody else's domain": {to: "echo@inbox.test", signed: true, forAgents: 1, mail: func(*setup) string {
			return emailtest.Report("", emailtest.ReportOn("ann@other.test", "failed", "5.1.1"))
		}},
		"an unsigned complaint with our return path": {to: "abuse@inbox.test", mail: func(s *setup) string {
			_, from := s.adapter.outbox.tokens.ReturnPath(oneDelivery, "ann@sender.test")
			return strings.ReplaceAll(emailtest.Complaint("Original-Mail-From: <"+from+">\nOriginal-Rcpt-To: ann@sender.test\n"), "fbl@sender.test", "fbl@plain.test")
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryComplaint, Reason: "reported as unwanted: abuse"}},
			failures: []string{"ann@sender.test soft"}},
		"a complaint of a customer of the organization": {to: "abuse@inbox.test", signed: true, mail: func(s *setup) string {
			_, from := s.adapter.outbox.tokens.ReturnPath(oneDelivery, "ann@sender.test")
			return emailtest.Complaint("Original-Mail-From: <" + from + ">\nOriginal-Rcpt-To: ann@sender.test\n")
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryComplaint, Reason: "reported as unwanted: abuse"}},
			failures: []string{"ann@sender.test soft"}},
		"signed by a customer of the organization": {delivery: oneDelivery, signed: true, mail: func(*setup) string {
			return sentBy("Eve <eve@sender.test>", emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1")))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test soft"}},
		"signed by a customer who is called like a server": {delivery: oneDelivery, signed: true, mail: func(*setup) string {
			return sentBy("MAILER-DAEMON <mailer-daemon.eve@sender.test>", emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1")))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test soft"}},
		"signed, of the mailbox itself": {delivery: oneDelivery, signed: true, mail: func(*setup) string {
			return sentBy("Ann <Ann@sender.test>", emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1")))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test hard"}},
		"signed by its server, to the sender of another mail": {delivery: oneDelivery, mail: func(*setup) string {
			return signedOver(t, strings.Replace(aboutAnn(), "To: echo@inbox.test", "To: eve@far.test", 1))
		}, bounce: failedAnn, failures: []string{"ann@sender.test soft"}},
		"signed by its server, with a To beside it": {delivery: oneDelivery, mail: func(*setup) string {
			return "To: echo@inbox.test\r\n" + signedOver(t, strings.Replace(aboutAnn(), "To: echo@inbox.test", "To: eve@far.test", 1))
		}, bounce: failedAnn, failures: []string{"ann@sender.test soft"}},
		"signed by its server, read in another way": {delivery: oneDelivery, mail: func(*setup) string {
			return signedOver(t, aboutAnn(), "From", "To", "Date", "Subject", "Message-ID")
		}, bounce: failedAnn, failures: []string{"ann@sender.test soft"}},
		"signed by its server, long ago": {delivery: oneDelivery, mail: func(*setup) string {
			return signedOver(t, strings.Replace(aboutAnn(), "Date: ", dated(40*24*time.Hour)+"\r\nX-Date: ", 1))
		}, bounce: failedAnn, failures: []string{"ann@sender.test soft"}},
		"signed, of the postmaster of a host": {delivery: oneDelivery, signed: true, mail: func(*setup) string {
			return sentBy("Postmaster@mx.sender.test", emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1")))
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryBounced, Reason: "bounced: 5.1.1 550 5.1.1 no mailbox"}},
			failures: []string{"ann@sender.test hard"}},
		"by the Message-ID, of a customer": {to: "echo@inbox.test", signed: true, forAgents: 1, mail: func(*setup) string {
			return sentBy("Eve <eve@sender.test>", emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1")))
		}},
		"a complaint with our return path": {to: "abuse@inbox.test", signed: true, mail: func(s *setup) string {
			_, from := s.adapter.outbox.tokens.ReturnPath(oneDelivery, "ann@sender.test")
			return strings.Replace(emailtest.Complaint("Original-Mail-From: <"+from+">\nOriginal-Rcpt-To: ann@sender.test\n"), "fbl@sender.test", "postmaster@sender.test", 1)
		},
			bounce:   []exchange.Bounce{{DeliveryID: oneDelivery, Recipient: "ann@sender.test", Event: exchange.EventDeliveryComplaint, Reason: "reported as unwanted: abuse"}},
			failures: []string{"ann@sender.test complaint"}},
		"a forged complaint": {to: "abuse@inbox.test", signed: true, mail: func(*setup) string { return emailtest.Complaint("Original-Mail-From: <bounce+abc@inbox.test>\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := startOffice(t, nil)
			to := c.to
			if c.delivery != "" {
				whose := map[string]string{oneDelivery: "ann@sender.test", bothDelivery: "bob@sender.test"}[c.delivery]
				_, to = s.adapter.outbox.tokens.ReturnPath(c.delivery, whose)
			} else if to == "old" {
				to = "bounce+" + oldReturnPath(t, s.state, oneDelivery) + "@inbox.test"
			}
			mail, from := c.mail(s), ""
			switch mail {
			case "unsigned":
				mail = strings.Replace(emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1")), "<mailer-daemon@sender.test>", "<mailer-daemon@strict.test>", 1)
				mail = strings.ReplaceAll(mail, "<d1@sender.test>", "<d1@strict.test>")
				s.names.Text("_dmarc.strict.test", "v=DMARC1; p=reject")
			case "no author":
				mail = strings.Replace(emailtest.Report("", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1")), "From: Mail Delivery <mailer-daemon@sender.test>", "From: MAILER-DAEMON (Mail Delivery)", 1)
			}
			if c.signed || strings.Contains(mail, "<mailer-daemon@sender.test>") || strings.Contains(mail, "From: Ann") { // sender.test publishes p=reject
				mail = emailtest.Signed(t, mail)
			}
			if c.to == "abuse@inbox.test" {
				from = "fbl@sender.test"
			}
			s.greet().send(from, []string{to}, mail, "250")
			if diff := cmp.Diff(c.bounce, o.bounces); diff != "" {
				t.Error(diff)
			}
			var failures []string
			for _, one := range o.failures {
				failures = append(failures, one.Address+" "+one.Kind)
			}
			if diff := cmp.Diff(c.failures, failures); diff != "" {
				t.Error(diff)
			}
			if got := len(s.engine.All()); got != c.forAgents {
				t.Errorf("agents got %d messages", got)
			}
		})
	}
}

func TestBounceAddressTakesReportsOnly(t *testing.T) {
	s, _ := startOffice(t, nil)
	_, address := s.adapter.outbox.tokens.ReturnPath(oneDelivery, "ann@sender.test")
	w := s.greet()
	w.say("MAIL FROM:<ann@sender.test>", "250")
	w.say("RCPT TO:<"+address+">", "550 5.7.1")
	w.say("RSET", "250")
	w.say("MAIL FROM:<>", "250")
	w.say("RCPT TO:<"+strings.ToUpper(address)+">", "250")
	for _, change := range []int{len("bounce+") + 3, len(address) - len("@inbox.test") - 3} { // another delivery, another token
		forged := []byte(address)
		forged[change] = map[bool]byte{true: 'b', false: 'a'}[forged[change] == 'a']
		w.say("RCPT TO:<"+string(forged)+">", "550 5.1.1")
	}
	w = s.greet()
	w.say("MAIL FROM:<>", "250")
	_, gone := s.adapter.outbox.tokens.ReturnPath("01936f2a-0000-7000-8000-0000000009ff", "ann@sender.test")
	w.say("RCPT TO:<"+gone+">", "550 5.1.1")
	_, nobody := s.adapter.outbox.tokens.ReturnPath(oneDelivery, "eve@sender.test")
	w.say("RCPT TO:<"+nobody+">", "550 5.1.1")
	w.say("RCPT TO:<bounce@inbox.test>", "550 5.1.1")
}

func TestSuppressedAddressesGetNothing(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s, o := startOffice(t, func(options *Options) { options.Mode, options.Smarthost = ModeSmarthost, "smtp://"+k.Address })
	in := s.question(true, "Cc: two@sender.test")
	reply := replyTo(in, normalized.Text("x"))
	o.suppressed = []exchange.Suppression{{Address: "ann@sender.test", Kind: exchange.FailureHard, Reason: "550 5.1.1 nobody"}}
	_, err := s.deliver(reply)
	if found := fault.Of(err); !found.Permanent || !strings.Contains(found.Public, "inbox suppressions remove ann@sender.test") {
		t.Errorf("%v", err)
	}
	reply.Response.Cc = []string{"@two@sender.test"}
	receipts, err := s.deliver(reply)
	if _, _, mails := k.Counts(); err != nil || mails != 1 || !strings.Contains(receipts[0].Detail, "not sent to ann@sender.test") {
		t.Errorf("%+v, %v, %d mails", receipts, err, mails)
	}
	o.suppressed = nil
	k.Set(func(step, argument string) error {
		if step == "rcpt" {
			return &smtp.SMTPError{Code: 550, EnhancedCode: map[string]smtp.EnhancedCode{"ann@sender.test": {5, 1, 1}, "two@sender.test": {5, 2, 1}}[argument], Message: "no"}
		}
		return nil
	})
	if _, err := s.deliver(reply); !fault.Of(err).Permanent {
		t.Errorf("%v", err)
	}
	var failures []string
	for _, one := range o.failures {
		failures = append(failures, one.Address+" "+one.Kind)
	}
	if diff := cmp.Diff([]string{"ann@sender.test hard", "two@sender.test soft"}, failures); diff != "" {
		t.Error(diff)
	}
}

// TestOneReturnPathForEachRecipient: whoever sees the mail of one recipient can report about nobody else.
func TestOneReturnPathForEachRecipient(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s, o := startOffice(t, func(options *Options) { options.Mode, options.Smarthost = ModeSmarthost, "smtp://"+k.Address })
	reply := replyTo(s.question(true, "Cc: bob@sender.test"), normalized.Text("x"))
	reply.Response.Cc = []string{"@bob@sender.test"}
	plan, err := s.adapter.Plan(t.Context(), reply)
	if err != nil || len(plan.Destinations) != 1 {
		t.Fatalf("%+v, %v", plan, err)
	}

	paths := map[string]string{}
	var from string
	k.Set(func(step, argument string) error {
		switch step {
		case "mail":
			from = argument
		case "rcpt":
			paths[argument] = from
		}
		return nil
	})
	receipt, err := s.adapter.Deliver(t.Context(), exchange.Delivery{ID: bothDelivery, Attempt: 1, Reply: reply, NativeID: plan.NativeID, Destination: plan.Destinations[0]})
	sessions, _, mails := k.Counts()
	if err != nil || sessions != 1 || mails != 2 || k.Mails[0] != k.Mails[1] {
		t.Fatalf("%+v, %v: %d sessions, %d mails", receipt, err, sessions, mails)
	}
	if len(paths) != 2 || paths["ann@sender.test"] == paths["bob@sender.test"] {
		t.Fatalf("return paths %v", paths)
	}

	about := func(address string) string {
		return emailtest.Signed(t, emailtest.Report("", emailtest.ReportOn(address, "failed", "5.1.1")))
	}
	w := s.greet()
	w.send("", []string{paths["bob@sender.test"]}, about("ann@sender.test"), "250")
	if len(o.bounces) != 0 || len(o.failures) != 0 {
		t.Errorf("bob's return path reports about ann: %+v, %+v", o.bounces, o.failures)
	}
	w.send("", []string{paths["bob@sender.test"]}, about("bob@sender.test"), "250")
	if len(o.failures) != 1 || o.failures[0].Address != "bob@sender.test" || o.failures[0].Kind != exchange.FailureHard {
		t.Errorf("failures %+v", o.failures)
	}
}

// TestAProvenMailWithoutATurnEndsASuppression: where a turn is stored, that does, and the mail costs no look-up.
func TestAProvenMailWithoutATurnEndsASuppression(t *testing.T) {
	for name, row := range map[string]struct {
		mail, to, answer string
		ends             bool
	}{
		"to a role":              {emailtest.Signed(t, emailtest.Letter("I am here", "To: postmaster@inbox.test", "From: Ann <Ann@sender.test>")), "postmaster@inbox.test", "250", true},
		"refused":                {emailtest.Signed(t, emailtest.Letter("I am here")), "echo@inbox.test", "550 5.7.1", true},
		"refused for now":        {emailtest.Signed(t, emailtest.Letter("I am here")), "echo@inbox.test", "451", false},
		"accepted":               {emailtest.Signed(t, emailtest.Letter("I am here")), "echo@inbox.test", "250", false},
		"to a role of others":    {emailtest.Signed(t, emailtest.Letter("I am here", "To: bob@far.test")), "postmaster@inbox.test", "250", false},
		"of another":             {emailtest.Signed(t, emailtest.Letter("I am here", "To: postmaster@inbox.test", "From: bob@sender.test")), "postmaster@inbox.test", "250", false},
		"unproven, of that name": {emailtest.Letter("I am here", "To: postmaster@inbox.test", "From: ann@sender.test"), "postmaster@inbox.test", "250", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := startOffice(t, nil)
			s.names.Text("_dmarc.sender.test", "v=DMARC1; p=none")
			s.engine.Refuse = func(exchange.Inbound) error {
				return map[string]error{"550 5.7.1": fault.New(fault.Forbidden, "not you"), "451": fault.New(fault.Unavailable, "later")}[row.answer]
			}
			o.suppressed = []exchange.Suppression{{Address: "ann@sender.test", Kind: exchange.FailureHard, Reason: "550 5.1.1 nobody"}}
			s.greet().send("ann@sender.test", []string{row.to}, row.mail, row.answer)
			if ended := len(o.suppressed) == 0; ended != row.ends || len(o.lifted) > 0 != row.ends {
				t.Errorf("ended %v, lifted %v", ended, o.lifted)
			}
		})
	}
}
