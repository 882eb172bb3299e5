package email

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/golden"
	"inbox/normalized"
	"inbox/policypart"
)

// question brings one mail and returns it as received.
func (s *setup) question(proven bool, lines ...string) exchange.Inbound {
	s.t.Helper()
	mail := emailtest.Letter("What is it?", lines...)
	if proven {
		mail = emailtest.Signed(s.t, mail)
	}
	from := "ann@sender.test"
	if !proven {
		from = "ann@plain.test"
	}
	before := len(s.engine.All())
	s.greet().send(from, []string{"echo+t1@inbox.test"}, mail, "250")
	return s.engine.All()[before]
}

// unsigned cuts our signature off a mail.
func unsigned(mail []byte) []byte {
	fields, _, err := message.Split(mail)
	if err != nil {
		panic(err)
	}
	return fields.Without(mail, func(f message.Field) bool { return f.Name == "DKIM-Signature" })
}

func file(name, mime string, data []byte) normalized.Part {
	return normalized.Part{Kind: normalized.PartFile, Name: name, MIME: mime, BytesRef: &normalized.BytesRef{Kind: normalized.BytesInline, DataBase64: base64.StdEncoding.EncodeToString(data)}}
}

func TestReplies(t *testing.T) {
	seconds := int64(90)
	expires := identity.At(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC))
	for name, c := range map[string]struct {
		question []string
		parts    []normalized.Part
		change   func(*exchange.Reply)
	}{
		"plain":           {nil, []normalized.Part{normalized.Text("Hello Ann,\n\nit is 4 = 2+2.\n.\nFrom here on, ünïcode.")}, nil},
		"markdown":        {nil, []normalized.Part{normalized.Markdown("# Title\n\nA *word*, a [link](https://x.test/a), a [bad](javascript:alert(1)) one, <script>alert(1)</script> and ![pic](https://t.test/p.gif).\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")}, nil},
		"html":            {nil, []normalized.Part{{Kind: normalized.PartText, MIME: normalized.MIMEHTML, Content: `<p onclick="x()">Hi <b>Ann</b><img src="https://t.test/x"><a href="/rel">r</a></p>`}}, nil},
		"table in german": {[]string{"Content-Language: de-AT", "Subject: =?utf-8?q?=3Cb=3E_=26_Gr=C3=BC=C3=9Fe?="}, []normalized.Part{normalized.Markdown("Zwei Zahlen:\n\n| Zahl | `<td>` |\n|---|:-:|\n| 1 | [zwei](https://x.test/<td) |\n\n`<table>` & \"th\"\n")}, nil},
		"files": {nil, []normalized.Part{normalized.Text("Two files."), file("../übersicht.csv", "text/csv", []byte("a;b\r\n1;2\r\n")), file("run.pdf.exe", "application/pdf", []byte("MZ")),
			{Kind: normalized.PartFile, Name: "far.png", BytesRef: &normalized.BytesRef{Kind: normalized.BytesURL, URL: "https://far.test/far.png"}},
			file("mail.eml", "message/rfc822", []byte("From: x\r\n\r\n"))}, nil},
		"only a file": {nil, []normalized.Part{file("a.txt", "text/plain", []byte("a"))}, nil},
		"policy": {nil, []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.ConsentRequired, Title: "Please allow",
			Message: "I need your calendar.", URL: "https://inbox.test/policy/x", ActionLabel: "Allow", ExpiresAt: &expires}}}, nil},
		"too many": {nil, []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.TooManyRequests, Message: "Slow down.", RetryAfterSeconds: &seconds}}}, nil},
		"failed": {nil, nil, func(r *exchange.Reply) {
			r.Response.Error = &normalized.ResponseError{Code: "x", Message: "It did not work."}
		}},
		"thread": {[]string{"References: <root@x.test> <bad id@x> <two@x.test>", "In-Reply-To: <two@x.test>", "Subject: RE: Aw: =?utf-8?Q?Pr=C3=BCfung?=", "Thread-Topic: Prüfung", "From: \"Ännchen, Ann\" <ann@sender.test>"},
			[]normalized.Part{normalized.Text("ok"), {Kind: normalized.PartLink, URL: "https://x.test", Title: "See\r\nthis"}, {Kind: normalized.PartToolCall, ID: "1", Name: "secret"}}, nil},
		"no id": {[]string{"Message-ID: broken", "References: <root@x.test>"}, []normalized.Part{normalized.Text("ok")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			reply := replyTo(s.question(true, c.question...), c.parts...)
			if c.change != nil {
				c.change(&reply)
			}
			for range 2 { // a repeat overwrites itself
				if _, err := s.deliver(reply); err != nil {
					t.Fatal(err)
				}
			}
			mails := s.captured()
			if len(mails) != 1 {
				t.Fatalf("%d mails were captured; want 1", len(mails))
			}
			golden.Compare(t, filepath.Join("reply", strings.ReplaceAll(name, " ", "-")+".golden"), unsigned(mails[0].Raw))
			if err := checkLines(mails[0].Raw); err != nil {
				t.Error(err)
			}
			for line := range bytes.SplitSeq(mails[0].Raw, []byte("\r\n")) {
				if len(line) > 998 {
					t.Errorf("a line of %d bytes", len(line))
				}
			}
			s.verifyOurs(mails[0].Raw)
		})
	}
}

// verifyOurs checks our signature with the record that the operator publishes.
func (s *setup) verifyOurs(mail []byte) {
	s.t.Helper()
	name, value := s.adapter.DNSRecord()
	found, err := dkim.VerifyWithOptions(bytes.NewReader(mail), &dkim.VerifyOptions{LookupTXT: func(asked string) ([]string, error) {
		if asked != name {
			return nil, fmt.Errorf("asked %s", asked)
		}
		return []string{value}, nil
	}})
	if err != nil || len(found) != 1 || found[0].Err != nil || found[0].Domain != "inbox.test" || found[0].Time.IsZero() {
		s.t.Errorf("signature %+v, %v", found, err)
	}
}

func TestAddedFieldsBreakTheSignature(t *testing.T) {
	s := start(t, nil)
	if _, err := s.deliver(replyTo(s.question(true), normalized.Text("x"))); err != nil {
		t.Fatal(err)
	}
	name, value := s.adapter.DNSRecord()
	lookup := &dkim.VerifyOptions{LookupTXT: func(string) ([]string, error) { return []string{value}, nil }}
	for _, line := range []string{"From: boss@bank.test", "Subject: pay", "Reply-To: thief@x.test", "Content-Type: text/html", chainField + ": hop=1; max=9"} {
		found, err := dkim.VerifyWithOptions(bytes.NewReader(append([]byte(line+"\r\n"), s.captured()[0].Raw...)), lookup)
		if err != nil || len(found) != 1 || found[0].Err == nil {
			t.Errorf("%s on top of a signed mail passes for %s", line, name)
		}
	}
}

func TestEnvelopeAndReceipt(t *testing.T) {
	s := start(t, nil)
	in := s.question(true, "To: echo+t1@inbox.test, bob@other.test", "Cc: carl@third.test, helper@inbox.test", "Reply-To: desk@sender.test")
	reply := replyTo(in, normalized.Text("x"))
	reply.Response.To = []string{"@bob@other.test", "@desk@sender.test"}
	reply.Response.Cc = []string{"@carl@third.test", "@helper@inbox.test", "@new@fourth.test", "nonsense\r\nBcc: x@y.test", "@ann@sender.test"}
	plan, err := s.adapter.Plan(t.Context(), reply)
	if err != nil {
		t.Fatal(err)
	}
	want := []exchange.Destination{
		{Key: "sender.test", Address: "desk@sender.test, ann@sender.test", Data: []byte(`{"recipients":["desk@sender.test","ann@sender.test"]}`)},
		{Key: "other.test", Address: "bob@other.test", Data: []byte(`{"recipients":["bob@other.test"]}`)},
		{Key: "third.test", Address: "carl@third.test", Data: []byte(`{"recipients":["carl@third.test"]}`)},
	}
	if diff := cmp.Diff(want, plan.Destinations); diff != "" || plan.NativeID != reply.ID+"@inbox.test" {
		t.Errorf("%s %s", plan.NativeID, diff)
	}
	receipts, err := s.deliver(reply)
	if err != nil || !strings.Contains(receipts[0].Detail, "left out: @helper@inbox.test, @new@fourth.test, nonsense Bcc: x@y.test") {
		t.Errorf("receipts %+v, %v", receipts, err)
	}
	mails := s.captured()
	if len(mails) != 3 || mails[0].From != "echo+t1@inbox.test" || !bytes.Contains(mails[0].Raw, []byte("To: <desk@sender.test>, <bob@other.test>\r\nCc: <carl@third.test>, \"Ann Sender\" <ann@sender.test>\r\n")) {
		t.Errorf("%d mails, first from %s:\n%s", len(mails), mails[0].From, mails[0].Raw)
	}
}

func TestUnprovenMailAndPolicyGoToTheAskerAlone(t *testing.T) {
	s := start(t, nil)
	for name, reply := range map[string]exchange.Reply{
		"unproven": replyTo(s.question(false, "From: ann@plain.test", "To: echo@inbox.test, bob@other.test"), normalized.Text("x")),
		"policy": replyTo(s.question(true, "To: echo@inbox.test, bob@other.test"), normalized.Part{Kind: normalized.PartPolicy,
			Policy: &policypart.Part{Kind: policypart.PaymentRequired, Message: "pay"}}),
	} {
		reply.Response.Cc = []string{"@bob@other.test"}
		plan, err := s.adapter.Plan(t.Context(), reply)
		if err != nil || len(plan.Destinations) != 1 {
			t.Errorf("%s: %+v, %v", name, plan, err)
		}
	}
}

func TestPlanOfUnreadableRouteGivesUp(t *testing.T) {
	s := start(t, nil)
	_, err := s.adapter.Plan(t.Context(), exchange.Reply{ID: "x", Route: []byte(`{"v":99}`)})
	if !fault.Of(err).Permanent {
		t.Errorf("error %v", err)
	}
}

func TestSigningKeys(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	write := func(kind string, der []byte) {
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
	loaded, err := LoadKey(exchangetest.NewDocuments(), path)
	if err != nil || !loaded.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(key.Public()) {
		t.Errorf("PKCS#1: %v", err)
	}
	write("RSA PRIVATE KEY", []byte("junk"))
	if _, err := LoadKey(exchangetest.NewDocuments(), path); err == nil || !strings.HasPrefix(err.Error(), "mail.dkim_key_file ") {
		t.Errorf("junk: %v", err)
	}
	if _, err := LoadKey(exchangetest.NewDocuments(), path+".missing"); err == nil || !strings.HasPrefix(err.Error(), "mail.dkim_key_file: ") {
		t.Errorf("missing: %v", err)
	}
	state := exchangetest.NewDocuments()
	first, err := LoadKey(state, "")
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadKey(state, "")
	if err != nil || !again.Public().(*rsa.PublicKey).Equal(first.Public()) {
		t.Errorf("the stored key is not found again: %v", err)
	}
	name, value := DNSRecord("inbox.test:8080", "inbox", first)
	if name != "inbox._domainkey.inbox.test" || !strings.HasPrefix(value, "v=DKIM1; k=rsa; p=MII") {
		t.Errorf("%s %s", name, value)
	}
}

func TestLinks(t *testing.T) {
	s := start(t, nil)
	want := []exchange.Link{{Rel: "mailto", Href: "mailto:echo@inbox.test"}}
	if diff := cmp.Diff(want, s.adapter.Links(exchange.AgentProfile{Address: "@echo@inbox.test:8080"})); diff != "" {
		t.Error(diff)
	}
}

func TestMailIsNotAcknowledgedWithinAMinute(t *testing.T) {
	s := start(t, nil)
	for wanted, want := range map[time.Duration]time.Duration{
		time.Millisecond: time.Minute, time.Minute: time.Minute, time.Hour: time.Hour,
	} {
		if got := s.adapter.AckAfter(wanted); got != want {
			t.Errorf("wanted after %v: after %v, want %v", wanted, got, want)
		}
	}
}

// TestAcknowledgementIsAnAutomaticReply: it stands in the thread as every reply does and goes to the asker alone.
func TestAcknowledgementIsAnAutomaticReply(t *testing.T) {
	s := start(t, nil)
	in := s.question(true)
	ack, answer := replyTo(in, normalized.Text("I am working on it.")), replyTo(in, normalized.Text("It is done."))
	ack.Notice, answer.ID = exchange.NoticeAck, "01936f2a-0000-7000-8000-000000000002"
	plan, err := s.adapter.Plan(t.Context(), ack)
	if err != nil || len(plan.Destinations) != 1 {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	later, err := s.adapter.Plan(t.Context(), answer)
	if err != nil || later.Destinations[0].Key != plan.Destinations[0].Key || later.NativeID == plan.NativeID {
		t.Errorf("the answer goes %+v, %v; order is kept by key", later, err)
	}
	first, second := s.presented(ack), s.presented(answer)
	if !strings.Contains(string(first), "I am working on it.") {
		t.Errorf("the words are missing:\n%s", first)
	}
	for _, mail := range [][]byte{first, second} {
		fields, _, _ := message.Split(mail)
		for name, want := range map[string]string{
			"In-Reply-To": "<m1@sender.test>", "References": "<m1@sender.test>", "Subject": "Re: A question",
			"Auto-Submitted": "auto-replied", "X-Auto-Response-Suppress": "All",
		} {
			if got := fields.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
}

// dialerTo connects to one server, whatever the address.
type dialerTo string

func (d dialerTo) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, string(d))
}

func TestDirectDelivery(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s := start(t, func(o *Options) { o.Mode, o.Dialer = ModeMX, dialerTo(k.Address) })
	s.names.Host("sender.test", "192.0.2.1")
	receipts, err := s.deliver(replyTo(s.question(true), normalized.Text("x")))
	if err != nil || len(receipts) != 1 || !strings.HasPrefix(receipts[0].Detail, "sender.test[192.0.2.1] without TLS: 2.0.0 OK") {
		t.Fatalf("%+v, %v", receipts, err)
	}
	s.verifyOurs([]byte(k.Mails[0]))
}

func TestEachRecipientHasAnOwnResult(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s := start(t, func(o *Options) { o.Mode, o.Dialer = ModeMX, dialerTo(k.Address) })
	s.names.Host("sender.test", "192.0.2.1")
	in := s.question(true, "Cc: two@sender.test, three@sender.test", "Message-ID: <m2@sender.test>")
	greylisted := false
	var offered [][]string
	var current []string
	k.Set(func(step, argument string) error {
		switch step {
		case "mail":
			current = nil
		case "rcpt":
			current = append(current, argument)
			if argument == "two@sender.test" {
				return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "nobody"}
			}
			if argument == "three@sender.test" && !greylisted {
				greylisted = true
				return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "greylisted"}
			}
		case "data":
			offered = append(offered, current)
		}
		return nil
	})
	reply := replyTo(in, normalized.Text("x"))
	reply.Response.Cc = []string{"@two@sender.test", "@three@sender.test"}
	plan, err := s.adapter.Plan(t.Context(), reply)
	if err != nil {
		t.Fatal(err)
	}
	id := "01936f2a-0000-7000-8000-0000000000aa"
	var done []string
	for attempt := 1; attempt <= 2; attempt++ {
		receipt, err := s.adapter.Deliver(t.Context(), exchange.Delivery{
			ID: id, Attempt: 1, Repeated: attempt > 1, Done: done, Reply: reply, NativeID: plan.NativeID, Destination: plan.Destinations[0],
		})
		done = append(done, receipt.Done...)
		if attempt == 1 && (err == nil || fault.Of(err).Permanent || !strings.Contains(fault.Of(err).Public, "taken for 2 of 3")) {
			t.Fatalf("%+v, %v", receipt, err)
		}
		if attempt == 2 && err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([][]string{{"ann@sender.test"}, {"three@sender.test"}}, offered); diff != "" {
		t.Error(diff)
	}
	if k.Mails[0] != k.Mails[1] {
		t.Error("the repeat has other bytes")
	}
}

// TestRepeatHasTheFirstBytes: a mail that may have reached its server is repeated as it was, whatever its reply or the settings would make of it
// by then. Its receiver recognises it, and a signature stays good.
func TestRepeatHasTheFirstBytes(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s := start(t, func(o *Options) { o.Mode, o.Dialer = ModeMX, dialerTo(k.Address) })
	s.names.Host("sender.test", "192.0.2.1")
	reply := replyTo(s.question(true), normalized.Text("first"))
	plan, err := s.adapter.Plan(t.Context(), reply)
	if err != nil {
		t.Fatal(err)
	}
	lost := true
	k.Set(func(step, _ string) error {
		if step == "data" && lost {
			return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "the answer was lost"}
		}
		return nil
	})
	for attempt := 1; attempt <= 2; attempt++ {
		_, err := s.adapter.Deliver(t.Context(), exchange.Delivery{
			ID: "01936f2a-0000-7000-8000-0000000000ab", Attempt: attempt, Repeated: attempt > 1, Reply: reply, NativeID: plan.NativeID, Destination: plan.Destinations[0],
		})
		if (err == nil) == lost {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
		lost = false
		reply.Response.Parts = []normalized.Part{normalized.Text("second")}
	}
	if sent := k.Mails[len(k.Mails)-1]; !strings.Contains(sent, "first") || strings.Contains(sent, "second") {
		t.Errorf("the repeat is %s", sent)
	}
}

func TestSmarthostDeliversOverOneSession(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+k.Address })
	reply := replyTo(s.question(true), normalized.Text("over the smarthost\n.\nend"))
	for range 3 {
		receipts, err := s.deliver(reply)
		if err != nil || receipts[0].Detail != "2.0.0 OK: queued" {
			t.Fatalf("%+v, %v", receipts, err)
		}
	}
	sessions, _, mails := k.Counts()
	if sessions != 1 || mails != 3 {
		t.Errorf("%d sessions, %d mails", sessions, mails)
	}
	s.verifyOurs([]byte(k.Mails[0]))
	if len(s.captured()) != 0 {
		t.Error("mails were captured")
	}
	k.Stop(t) // the kept session is dead now
	if _, err := s.deliver(reply); err == nil || fault.Of(err).Permanent {
		t.Errorf("a dead smarthost: %v", err)
	}
}

func TestSmarthostAnswersAreClassed(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+k.Address })
	in := s.question(true, "Cc: two@sender.test")
	reply := replyTo(in, normalized.Text("x"))
	refuse := func(at, who string, code int) func(string, string) error {
		return func(step, argument string) error {
			if step == at && (who == "" || who == argument) {
				return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: "no\tway"}
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		refuse    func(string, string) error
		permanent bool
		retry     bool
	}{
		"unknown recipient":        {refuse("rcpt", "", 550), true, false},
		"greylisted":               {refuse("rcpt", "", 451), false, true},
		"too many recipients":      {refuse("rcpt", "", 552), false, true},
		"refused content":          {refuse("data", "", 554), true, false},
		"busy after the final dot": {refuse("data", "", 451), false, true},
		"refused sender":           {refuse("mail", "", 550), true, false},
		"login wanted":             {refuse("mail", "", 530), false, true},
		"closing":                  {refuse("mail", "", 421), false, true},
		"fine":                     {nil, false, false},
	} {
		k.Set(c.refuse)
		_, err := s.deliver(reply)
		if (err != nil) != (c.permanent || c.retry) || fault.Of(err).Permanent != c.permanent && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && c.permanent && !strings.Contains(fault.Of(err).Public, "no way") {
			t.Errorf("%s: the operator reads %q", name, fault.Of(err).Public)
		}
	}

	both := reply
	both.Response.Cc = []string{"@two@sender.test"}
	_, _, before := k.Counts()
	k.Set(refuse("rcpt", "two@sender.test", 550))
	receipts, err := s.deliver(both)
	if err != nil || !strings.Contains(receipts[0].Detail, "refused: two@sender.test (no way)") {
		t.Errorf("%+v, %v", receipts, err)
	}
	k.Set(refuse("rcpt", "two@sender.test", 450))
	if _, err := s.deliver(both); err == nil || fault.Of(err).Permanent || !strings.Contains(fault.Of(err).Public, "taken for 1 of 2") {
		t.Errorf("one of two later: %v", err)
	}
	if _, _, after := k.Counts(); after != before+2 {
		t.Errorf("%d mails; who can have the mail gets it", after-before)
	}
	k.Set(nil)
	large := replyTo(in, file("big.bin", "application/octet-stream", make([]byte, 1<<20)))
	if _, err := s.deliver(large); !fault.Of(err).Permanent {
		t.Errorf("too large: %v", err)
	}
}

// TestInternationalAddresses has one in Cc: who else gets the mail gets its header too.
func TestInternationalAddresses(t *testing.T) {
	for offered, want := range map[bool]string{true: "[true true]", false: "[false]"} {
		k := emailtest.StartSinkWith(t, false, nil, "", func(server *smtp.Server) { server.EnableSMTPUTF8 = offered })
		s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+k.Address })
		reply := replyTo(s.question(true, "Cc: josé@other.test"), normalized.Text("to both"))
		reply.Response.Cc = []string{"josé@other.test"}
		_, err := s.deliver(reply)
		if offered != (err == nil) || !offered && !strings.Contains(err.Error(), "5.6.7") {
			t.Errorf("offered %t: %v", offered, err)
		}
		k.Mu.Lock()
		got := fmt.Sprint(k.UTF8)
		k.Mu.Unlock()
		if got != want {
			t.Errorf("offered %t: SMTPUTF8 %s; want %s", offered, got, want)
		}
	}
}

// TestFailuresAreChargedToTheirRecipients: what the server answers for a mailbox is not the server's, over a smarthost or directly, for one
// recipient and for several.
func TestFailuresAreChargedToTheirRecipients(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	refuse := func(at, who string, code int) func(string, string) error {
		return func(step, argument string) error {
			if step == at && (who == "" || who == argument) {
				return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 2, 2}, Message: "no"}
			}
			return nil
		}
	}
	for mode, change := range map[string]func(*Options){
		"direct":    func(o *Options) { o.Mode, o.Dialer = ModeMX, dialerTo(k.Address) },
		"smarthost": func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+k.Address },
	} {
		k.Set(nil)
		s := start(t, change)
		s.names.Host("sender.test", "192.0.2.1")
		one := replyTo(s.question(true, "Cc: two@sender.test"), normalized.Text("x"))
		both := one
		both.Response.Cc = []string{"@two@sender.test"}
		for name, c := range map[string]struct {
			reply  exchange.Reply
			refuse func(string, string) error
			want   exchange.Reach
		}{
			"full":             {one, refuse("rcpt", "", 452), exchange.ReachRecipient},
			"greylisted":       {one, refuse("rcpt", "", 451), exchange.ReachRecipient},
			"over quota":       {one, refuse("rcpt", "", 552), exchange.ReachRecipient},
			"all full":         {both, refuse("rcpt", "", 452), exchange.ReachRecipient},
			"one of two full":  {both, refuse("rcpt", "two@sender.test", 452), exchange.ReachRecipient},
			"content":          {one, refuse("data", "", 451), exchange.ReachRecipient},
			"closing":          {one, refuse("rcpt", "", 421), exchange.ReachNone},
			"sender put off":   {one, refuse("mail", "", 451), exchange.ReachNone},
			"sender, of two":   {both, refuse("mail", "", 451), exchange.ReachNone},
			"closing, for two": {both, refuse("rcpt", "", 421), exchange.ReachNone},
		} {
			k.Set(c.refuse)
			if _, err := s.deliver(c.reply); err == nil || exchange.ReachOf(err) != c.want {
				t.Errorf("%s, %s: reach %d, want %d: %v", mode, name, exchange.ReachOf(err), c.want, err)
			}
		}
	}
}
