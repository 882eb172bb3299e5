package email

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/adapters/email/text"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/internal/golden"
	"inbox/normalized"
)

// TestAgentGetsSubjectAndRecipients: an agent that was copied in could not tell who else got the mail.
func TestAgentGetsSubjectAndRecipients(t *testing.T) {
	s := start(t, nil)
	s.greet().send("ann@sender.test", []string{"echo+order-4711@inbox.test", "helper@inbox.test"}, emailtest.Signed(t, emailtest.Letter("hello",
		"To: Bo <bo@other.test>, echo+order-4711@inbox.test", "Cc: =?utf-8?Q?J=C3=BCrgen?= <j@Third.TEST>", "Bcc: spy@far.test",
		"Subject: =?utf-8?Q?Re=3A_Lampen=0D=0ABcc=3A_x?=", "Date: Sat, 21 Nov 2026 13:00:00 +0100", "List-Id: Lamps <lamps.sender.test>", "Content-Language: de-AT",
	)), "250")
	for _, in := range s.engine.All() {
		at := identity.At(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
		want := &normalized.Surface{
			Channel: "email", Subject: "Re: Lampen Bcc: x", Date: &at, ListID: "lamps.sender.test", Language: "de-AT",
			To: []normalized.SurfaceRecipient{{Address: "@bo@other.test", Name: "Bo"}, {Address: "@echo+order-4711@inbox.test"}},
			Cc: []normalized.SurfaceRecipient{{Address: "@j@third.test", Name: "Jürgen"}},
		}
		if in.Message.Recipient == "@echo@inbox.test" {
			want.Tag = "order-4711"
		}
		if diff := cmp.Diff(want, in.Message.Surface, cmpopts.IgnoreUnexported(normalized.Surface{})); diff != "" {
			t.Errorf("%s: %s", in.Message.Recipient, diff)
		}
		if err := normalized.Validate(in.Message, normalized.DefaultLimits()); err != nil {
			t.Error(err)
		}
	}
	if len(s.engine.All()) != 2 {
		t.Errorf("%d messages", len(s.engine.All()))
	}
}

func TestSurfaceOfOddHeaders(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	var many []string
	for i := range 190 {
		many = append(many, fmt.Sprintf("%s <person%d@%s.test>", strings.Repeat("Ä", 60), i, strings.Repeat("x", 50)))
	}
	for i, row := range []struct {
		lines []string
		check func(*normalized.Surface) bool
	}{
		{[]string{"Date: yesterday", "Subject:"}, func(s *normalized.Surface) bool { return s.Date == nil && s.Subject == "" }},
		{[]string{"Date: Sat, 21 Nov 99999 12:00:00 +0000"}, func(s *normalized.Surface) bool { return s.Date == nil }},
		{[]string{"Date: Thu, 1 Jan 1903 12:00:00 +0000"}, func(s *normalized.Surface) bool { return s.Date == nil }},
		{[]string{"To: undisclosed-recipients:;"}, func(s *normalized.Surface) bool { return s.To == nil && s.Cc == nil }},
		{[]string{"List-Id: no brackets", "Content-Language: und"}, func(s *normalized.Surface) bool { return s.ListID == "" && s.Language == "" }},
		{[]string{"To: echo@inbox.test,\r\n " + strings.Join(many, ",\r\n ")}, func(s *normalized.Surface) bool {
			return len(s.To) > 40 && len(s.To) <= normalized.MaxSurfaceRecipients && len(s.To)+s.Omitted == 191
		}},
	} {
		w.send("ann@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", append(row.lines, "From: ann@plain.test", fmt.Sprintf("Message-ID: <%d@plain.test>", i))...), "250")
		in := s.engine.All()[i]
		if err := normalized.Validate(in.Message, normalized.DefaultLimits()); err != nil || !row.check(in.Message.Surface) {
			t.Errorf("%.60q: %+v, %v", row.lines, in.Message.Surface, err)
		}
	}
}

// TestReplyAllReachesWhomItMay: all of To and Cc, once; no one where the sender is not proven, where the agent was
// told in secret, with a demand, and with what was made possible by one.
func TestReplyAllReachesWhomItMay(t *testing.T) {
	s := start(t, func(o *Options) {
		o.RepliesToAll = func(agent string) bool { return agent == "echo" }
		o.AnswersLists = func(string) bool { return true }
	})
	all := []string{"To: echo+t1@inbox.test, Bo <bo@other.test>, ann@sender.test", "Cc: helper@inbox.test, carl@third.test, BO@other.test"}
	for i, row := range []struct {
		name   string
		proven bool
		lines  []string
		change func(*exchange.Reply)
		want   string
	}{
		{"everybody", true, all, nil, "ann@sender.test bo@other.test carl@third.test"},
		{"named by the agent as well", true, all, func(r *exchange.Reply) { r.Response.To = []string{"@carl@third.test"} }, "ann@sender.test bo@other.test carl@third.test"},
		{"not proven", false, append([]string{"From: ann@plain.test"}, all...), nil, "ann@plain.test"},
		{"told in secret", true, []string{"To: bo@other.test"}, nil, "ann@sender.test"},
		{"through a list", true, append([]string{"List-Id: <l.far.test>"}, all...), nil, "ann@sender.test"},
		{"an answer in private", true, all, func(r *exchange.Reply) { r.Response.Visibility = normalized.VisibilityDirect }, "ann@sender.test"},
		{"an answer in private, to another one as well", true, all, func(r *exchange.Reply) {
			r.Response.Visibility, r.Response.Cc = normalized.VisibilityDirect, []string{"@carl@third.test"}
		}, "ann@sender.test carl@third.test"},
		{"an answer for all that read the question", true, all, func(r *exchange.Reply) { r.Response.Visibility = normalized.VisibilityPublic }, "ann@sender.test bo@other.test carl@third.test"},
		{"an acknowledgement", true, all, func(r *exchange.Reply) { r.Notice = exchange.NoticeAck }, "ann@sender.test"},
		{"a demand", true, all, func(r *exchange.Reply) { r.Response.Parts = []normalized.Part{consent()} }, "ann@sender.test"},
	} {
		reply := replyTo(s.question(row.proven, append(slices.Clone(row.lines), fmt.Sprintf("Message-ID: <%d@x.test>", i))...), normalized.Text("x"))
		if row.change != nil {
			row.change(&reply)
		}
		plan, err := s.adapter.Plan(t.Context(), reply)
		var got []string
		for _, one := range plan.Destinations {
			got = append(got, one.Address)
		}
		if slices.Sort(got); err != nil || strings.Join(got, " ") != row.want {
			t.Errorf("%s: %s, %v; want %s", row.name, strings.Join(got, " "), err, row.want)
		}
	}
}

// TestAfterADemandNothingGoesElsewhere: what was made possible by a demand goes where the demand went, to the proven address.
func TestAfterADemandNothingGoesElsewhere(t *testing.T) {
	s := start(t, nil)
	reply := replyTo(s.question(true, "To: echo@inbox.test", "Reply-To: desk@sender.test"), normalized.Text("4711"))
	reply.Route = []byte(strings.Replace(string(reply.Route), `"reply_signed":true`, `"reply_signed":false`, 1)) // as proven by SPF alone
	for _, asked := range []bool{false, true} {
		want := "desk@sender.test"
		if asked {
			reply.Response.Visibility, reply.Response.Metadata = normalized.VisibilityDirect, map[string]string{exchange.MetadataAsked: "true"}
			want = "ann@sender.test"
		}
		plan, err := s.adapter.Plan(t.Context(), reply)
		if err != nil || len(plan.Destinations) != 1 || plan.Destinations[0].Address != want {
			t.Errorf("asked %v: %v, %v; want %s", asked, plan.Destinations, err, want)
		}
	}
}

// TestAgentAnswersAllOfSurface: an agent that names To and Cc of the surface reaches them under the names that they had.
//
//contract:shows message-36
func TestAgentAnswersAllOfSurface(t *testing.T) {
	s := start(t, nil)
	var others []string
	for i := range 30 {
		others = append(others, fmt.Sprintf("P%d <p%d@other%d.test>", i, i, i))
	}
	in := s.question(true, "To: echo+t1@inbox.test", "Cc: "+strings.Join(others, ", "))
	reply := replyTo(in, normalized.Text("x"))
	for _, one := range append(in.Message.Surface.To, in.Message.Surface.Cc...) {
		reply.Response.Cc = append(reply.Response.Cc, one.Address)
	}
	receipts, err := s.deliver(reply)
	if err != nil || len(receipts) != 31 {
		t.Fatalf("%d destinations, %v", len(receipts), err)
	}
	fields, _, err := message.Split(s.captured()[0].Raw)
	if got := fields.Addresses("Cc"); err != nil || len(got) != 30 || got[29].Name != "P29" {
		t.Errorf("Cc %v, %v", got, err)
	}
}

// show prints parts for golden files.
func show(parts []normalized.Part) []byte {
	var out bytes.Buffer
	for _, part := range parts {
		if part.Kind == normalized.PartText {
			fmt.Fprintf(&out, "== %s\n%s\n", part.MIME, part.Content)
			if part.New != "" {
				fmt.Fprintf(&out, "== new\n%s\n", part.New)
			}
			continue
		}
		if part.Kind == normalized.PartLink {
			fmt.Fprintf(&out, "== link %s %q\n", part.URL, part.Title)
			continue
		}
		data, _ := base64.StdEncoding.DecodeString(part.BytesRef.DataBase64)
		fmt.Fprintf(&out, "== %s %s %q %d bytes: %.40q\n", part.Kind, part.MIME, part.Name, part.Size, data)
		if part.ContentID != "" {
			fmt.Fprintf(&out, "   content id %s\n", part.ContentID)
		}
	}
	return out.Bytes()
}

func TestCorpus(t *testing.T) {
	s := start(t, nil)
	files, err := filepath.Glob("text/testdata/mail/*.eml")
	if err != nil || len(files) < 30 {
		t.Fatalf("corpus: %d files, %v", len(files), err)
	}
	w := s.greet()
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".eml")
		mail, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before := len(s.engine.All())
		w.send("ann@plain.test", []string{"echo@inbox.test"}, string(mail), "250")
		all := s.engine.All()
		if len(all) != before+1 {
			t.Fatalf("%s was not received", name)
		}
		golden.Compare(t, filepath.Join("..", "text", "testdata", "mail", name+".golden"), show(all[before].Message.Parts))
		if err := normalized.Validate(all[before].Message, normalized.DefaultLimits()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

//contract:shows message-26
func TestLargeFilesGoToTheBlobStore(t *testing.T) {
	s := start(t, nil)
	data := bytes.Repeat([]byte("0123456789"), 30<<10)
	body := "--x\n\nhere\n--x\nContent-Type: application/zip; name=big.zip\nContent-Transfer-Encoding: base64\n\n" + emailtest.InLines(base64.StdEncoding.EncodeToString(data)) + "--x--"
	s.greet().send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter(body, "From: a@plain.test", "Content-Type: multipart/mixed; boundary=x"), "250")
	file := s.engine.Only(t).Message.Parts[1]
	if file.BytesRef.Kind != normalized.BytesContentAddressed || file.Size != int64(len(data)) || file.Name != "big.zip" {
		t.Fatalf("file %+v", file)
	}
	got, err := readBlob(t.Context(), s.adapter.options.Blobs, file.BytesRef.Digest, 1<<30)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("blob: %d bytes, %v", len(got), err)
	}
}

// FuzzMessageParts brings arbitrary mails into the contract's form.
func FuzzMessageParts(f *testing.F) {
	files, _ := filepath.Glob("text/testdata/mail/*.eml")
	for _, file := range files {
		if mail, err := os.ReadFile(file); err == nil {
			f.Add(mail)
		}
	}
	f.Fuzz(func(t *testing.T, mail []byte) {
		fields, body, err := message.Split(mail)
		if err != nil {
			return
		}
		blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
		if err != nil {
			t.Fatal(err)
		}
		found, err := text.Read(t.Context(), fields, body, len(mail), blobs)
		if err != nil && !fault.Is(err, fault.Malformed) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		parts, err := messageParts(found, fields.Decoded("Subject"), "")
		if err != nil {
			return
		}
		for i := range parts {
			if _, err := json.Marshal(parts[i]); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestInternationalSenders: a sender with an address in another script could not write at all.
func TestInternationalSenders(t *testing.T) {
	s := start(t, nil)
	s.names.Text("_dmarc.xn--bcher-kva.test", "v=DMARC1; p=reject; adkim=s")
	_, record := DNSRecord("x.test", "s1", emailtest.SenderKey())
	s.names.Text("s1._domainkey.xn--bcher-kva.test", record)
	w := s.dial()
	for line := w.say("EHLO client.test", ""); !strings.Contains(line, "SMTPUTF8"); line = w.reply() {
		if !strings.Contains(line, "-") {
			t.Fatal("SMTPUTF8 is not announced")
		}
	}
	w = s.greet()
	w.say("MAIL FROM:<änn@bücher.test>", "553 5.6.7")
	w.say("MAIL FROM:<änn@bücher.test> BODY=8BITMIME SMTPUTF8", "250")
	w.say("RCPT TO:<ëcho@inbox.test>", "550 5.1.3")
	w.say("RCPT TO:<echo+t1@inbox.test>", "250")
	w.say("DATA", "354")
	mail := emailtest.SignedAs(t, emailtest.Letter("Grüße", "From: Änn <änn@bücher.test>", "To: echo+t1@inbox.test, ünal@other.test", "Subject: Bücher", "Message-ID: <m1@bücher.test>"), "bücher.test", "s1", emailtest.SenderKey())
	w.write(mail + ".\r\n")
	w.expect("250")

	in := s.engine.Only(t)
	sender := in.Message.Sender
	if sender.Address.String() != "@änn@xn--bcher-kva.test" || !sender.Verified || sender.AuthMethod != normalized.AuthEmailDMARC || in.Message.Surface.Subject != "Bücher" || len(in.Message.Surface.To) != 2 {
		t.Errorf("sender %+v, surface %+v", sender, in.Message.Surface)
	}
	if err := normalized.Validate(in.Message, normalized.DefaultLimits()); err != nil {
		t.Error(err)
	}
	if !bytes.Contains(in.Original, []byte("with UTF8SMTP id")) || !bytes.Contains(in.Original, []byte("Return-Path: <änn@xn--bcher-kva.test>")) {
		t.Errorf("original:\n%s", in.Original)
	}

	reply := replyTo(in, normalized.Text("an answer"))
	plan, err := s.adapter.Plan(t.Context(), reply)
	if err != nil || len(plan.Destinations) != 1 || plan.Destinations[0].Key != "xn--bcher-kva.test" || plan.Destinations[0].Address != "änn@xn--bcher-kva.test" {
		t.Errorf("plan %+v, %v", plan, err)
	}
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	fields, _, err := message.Split(s.captured()[0].Raw)
	if to := fields.Addresses("To"); err != nil || len(to) != 1 || to[0].Key() != "änn@xn--bcher-kva.test" || to[0].Name != "Änn" {
		t.Errorf("To %+v, %v", to, err)
	}
}

// TestOurDomainInItsOwnScript: an address is the same whichever form of the domain a program writes.
func TestOurDomainInItsOwnScript(t *testing.T) {
	s := start(t, func(o *Options) { o.Domain = "bücher.example" })
	w := s.greet()
	w.say("MAIL FROM:<ann@plain.test> SMTPUTF8", "250")
	w.say("RCPT TO:<echo@BÜCHER.example>", "250")
	w.say("RSET", "250")
	w.say("MAIL FROM:<ann@plain.test>", "250")
	w.say("RCPT TO:<echo@bücher.example>", "553 5.6.7")
	w.say("RCPT TO:<echo@xn--bcher-kva.example>", "250")
}

// TestOneLetterTwoWays: a letter with its mark apart is the same letter.
func TestOneLetterTwoWays(t *testing.T) {
	one, other := message.Mailbox{Local: "\u00e4nn", Domain: "x.test"}, message.Mailbox{Local: "a\u0308NN", Domain: "x.test"}
	if one.Key() != other.Key() {
		t.Errorf("%q and %q", one.Key(), other.Key())
	}
}
