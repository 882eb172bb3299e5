package email

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/google/go-cmp/cmp"

	"inbox/adapters/email/emailtest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// signedOver signs a mail as sender.test over the named fields alone.
func signedOver(t *testing.T, mail string, names ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := dkim.Sign(&out, strings.NewReader(mail), &dkim.SignOptions{
		Domain: "sender.test", Selector: "s1", Signer: emailtest.SenderKey(), HeaderKeys: names,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func dated(ago time.Duration) string { return "Date: " + time.Now().Add(-ago).Format(time.RFC1123Z) }

// TestWhoAMailIsMeantFor: the author is proven in every row; whether the mail counts as a request to the agent depends on who says that
// it is meant for it.
func TestWhoAMailIsMeantFor(t *testing.T) {
	const own, day = "v=spf1 ip4:127.0.0.1 -all", 24 * time.Hour
	signed := func(lines ...string) func(*testing.T) string {
		return func(t *testing.T) string { t.Helper(); return emailtest.Signed(t, emailtest.Letter("x", lines...)) }
	}
	added := func(top string, lines ...string) func(*testing.T) string {
		return func(t *testing.T) string { t.Helper(); return top + "\r\n" + signed(lines...)(t) }
	}
	over := func(names string, lines ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			return signedOver(t, emailtest.Letter("x", lines...), strings.Split(names, ":")...)
		}
	}
	for name, row := range map[string]struct {
		mail  func(*testing.T) string
		spf   string // of sender.test
		from  string // envelope; default mallory@far.test
		to    string // default echo@inbox.test
		clock time.Duration
		want  string // Proof.Addressed; empty = the sender is unproven
	}{
		"signed To":                          {mail: signed(), want: identity.AddressedRecipient},
		"signed To with a tag":               {mail: signed("To: echo+4711@inbox.test"), want: identity.AddressedRecipient},
		"signed To without the tag":          {mail: signed(), to: "echo+4711@inbox.test", want: identity.AddressedRecipient},
		"signed To in capitals":              {mail: signed("To: ECHO@Inbox.Test"), want: identity.AddressedRecipient},
		"signed To with a comment":           {mail: signed(`To: "Agent, the (first)" <echo@inbox.test> (ours)`), want: identity.AddressedRecipient},
		"signed To in encoded words":         {mail: signed("To: =?utf-8?q?J=C3=BCrgen?= <echo@inbox.test>"), want: identity.AddressedRecipient},
		"signed group in To":                 {mail: signed("To: Agents: helper@inbox.test, echo@inbox.test;"), want: identity.AddressedRecipient},
		"signed Cc":                          {mail: signed("To: bob@far.test", "Cc: helper@inbox.test, echo@inbox.test"), want: identity.AddressedRecipient},
		"two signed To fields":               {mail: signed("To: bob@far.test\r\nTo: echo@inbox.test"), want: identity.AddressedRecipient},
		"signed to somebody else":            {mail: signed("To: bob@far.test")},
		"signed to another agent":            {mail: signed("To: helper@inbox.test")},
		"the agent's name as a display name": {mail: signed(`To: "echo@inbox.test" <bob@far.test>`)},
		"the agent's name in a comment":      {mail: signed("To: bob@far.test (echo@inbox.test)")},
		"the agent of a domain below":        {mail: signed("To: echo@sub.inbox.test")},
		"an unsigned Resent-To":              {mail: added("Resent-To: echo@inbox.test", "To: bob@far.test")},
		"an unsigned second To":              {mail: added("To: echo@inbox.test", "To: bob@far.test")},
		"an unsigned To below": {mail: func(t *testing.T) string {
			t.Helper()
			return strings.Replace(over("From:Subject:Date", "To: bob@far.test")(t), "To: bob@far.test", "To: echo@inbox.test", 1)
		}},
		"an unsigned Cc":                      {mail: added("Cc: echo@inbox.test", "To: bob@far.test")},
		"an unsigned Cc beside a signed To":   {mail: added("Cc: eve@far.test")},
		"an unsigned second To of others":     {mail: added("To: eve@far.test")},
		"a blank before the colon":            {mail: added("To : echo@inbox.test", "To: bob@far.test")},
		"an unsigned Bcc":                     {mail: added("Bcc: echo@inbox.test", "To: bob@far.test")},
		"an unsigned Apparently-To":           {mail: added("Apparently-To: echo@inbox.test\r\nX-Original-To: echo@inbox.test\r\nDelivered-To: echo@inbox.test", "To: bob@far.test")},
		"an unsigned Resent-To beside it":     {mail: added("Resent-To: bob@far.test"), want: identity.AddressedRecipient},
		"To is not in h=":                     {mail: over("From:Subject:Date:Message-ID")},
		"Cc is not in h=":                     {mail: over("From:To:Date:Message-ID", "Cc: eve@far.test")},
		"To alone is in h=":                   {mail: over("From:To:Message-ID"), want: identity.AddressedRecipient},
		"the author resent it":                {mail: signed("To: bob@far.test", "Resent-From: ann@sender.test", "Resent-To: echo@inbox.test"), want: identity.AddressedRecipient},
		"a colleague resent it":               {mail: signed("To: bob@far.test", "Resent-From: bob@sender.test", "Resent-To: echo@inbox.test")},
		"a colleague resent it from there":    {mail: signed("To: bob@sender.test", "Resent-From: bob@sender.test", "Resent-To: echo@inbox.test"), spf: own, from: "ann@sender.test"},
		"a mail of 2019":                      {mail: signed("Date: Tue, 05 Mar 2019 10:00:00 +0000")},
		"signed eight days ago":               {mail: signed(), clock: 8 * day},
		"signed six days ago":                 {mail: signed(), clock: 6 * day, want: identity.AddressedRecipient},
		"dated next week":                     {mail: signed(dated(-7 * day))},
		"dated yesterday":                     {mail: signed(dated(day)), want: identity.AddressedRecipient},
		"a date that cannot be read":          {mail: signed("Date: tomorrow"), want: identity.AddressedRecipient},
		"Bcc from a server of the domain":     {mail: signed("To: bob@far.test"), spf: own, from: "ann@sender.test", want: identity.AddressedEnvelope},
		"Bcc from another server":             {mail: signed("To: bob@far.test"), from: "ann@sender.test"},
		"redirected by a colleague's mailbox": {mail: added("Delivered-To: bob@sender.test", "To: bob@sender.test"), spf: own, from: "ann@sender.test"},
		"redirected so by Exim":               {mail: added("Envelope-To: bob@sender.test", "To: bob@sender.test"), spf: own, from: "ann@sender.test"},
		"redirected so by Sieve":              {mail: added("X-Sieve-Redirected-From: bob@sender.test", "To: bob@sender.test"), spf: own, from: "ann@sender.test"},
		"Bcc through a relay of ours":         {mail: added("Delivered-To: echo@inbox.test", "To: bob@far.test"), spf: own, from: "ann@sender.test", want: identity.AddressedEnvelope},
		"redirected by the author's mailbox":  {mail: added("Delivered-To: Ann@sender.test", "To: bob@far.test"), spf: own, from: "ann@sender.test", want: identity.AddressedEnvelope},
		"signed To, redirected":               {mail: added("Delivered-To: bob@sender.test", "To: bob@sender.test, echo@inbox.test"), spf: own, from: "ann@sender.test", want: identity.AddressedRecipient},
		"forwarded by a colleague's mailbox":  {mail: signed("To: bob@sender.test"), spf: own, from: "bob+caf_=echo=inbox.test@sender.test"},
		"forwarded so with an added Cc":       {mail: added("Cc: echo@inbox.test", "To: bob@sender.test"), spf: own, from: "bob+caf_=echo=inbox.test@sender.test"},
		"forwarded so with another To": {mail: func(t *testing.T) string {
			t.Helper()
			return strings.Replace(over("From:Subject:Date:Message-ID", "To: bob@sender.test")(t), "To: bob@sender.test", "To: echo@inbox.test", 1)
		}, spf: own, from: "bob+caf_=echo=inbox.test@sender.test"},
		"To is not in h=, sent by the author":          {mail: over("From:Subject:Date:Message-ID"), spf: own, from: "ann@sender.test", want: identity.AddressedEnvelope},
		"unsigned, sent by the domain":                 {mail: func(*testing.T) string { return emailtest.Letter("x") }, spf: own, from: "ann@sender.test", want: identity.AddressedEnvelope},
		"old, but sent by the domain":                  {mail: signed("Date: Tue, 05 Mar 2019 10:00:00 +0000"), spf: own, from: "ann@sender.test", want: identity.AddressedEnvelope},
		"an added To, but sent by the domain":          {mail: added("To: eve@far.test"), spf: own, from: "ann@sender.test", want: identity.AddressedEnvelope},
		"several parts, and Content-Type is not in h=": {mail: over("From:To:Cc:Subject:Date:Message-ID", "Content-Type: multipart/mixed; boundary=b")},
		"so, and sent by the author":                   {mail: over("From:To:Cc:Subject:Date:Message-ID", "Content-Type: multipart/mixed; boundary=b"), spf: own, from: "ann@sender.test", want: identity.AddressedEnvelope},
		"HTML, and Content-Type is not in h=":          {mail: over("From:To:Date", "Content-Type: text/html")},
		"an unsigned charset that changes letters":     {mail: over("From:To:Date", "Content-Type: text/plain; charset=utf-16")},
		"an unsigned type that cannot be read":         {mail: over("From:To:Date", "Content-Type: text plain")},
		"an unsigned name of a file":                   {mail: over("From:To:Date", "Content-Type: text/plain; name=x.txt")},
		"unsigned flowed text":                         {mail: over("From:To:Date", `Content-Type: text/plain; charset="ISO-8859-1"; format=flowed`), want: identity.AddressedRecipient},
		"an unsigned second Content-Type":              {mail: added("Content-Type: text/html"), want: ""},
		"an unsigned transfer encoding":                {mail: added("Content-Transfer-Encoding: quoted-printable")},
		"an unsigned encoding that encodes nothing":    {mail: added("Content-Transfer-Encoding: 8Bit"), want: identity.AddressedRecipient},
		"an unsigned disposition":                      {mail: added("Content-Disposition: attachment; filename=x.txt")},
		"an unsigned disposition that changes nothing": {mail: added("Content-Disposition: inline"), want: identity.AddressedRecipient},
		"several parts, and another signature covers Content-Type": {mail: func(t *testing.T) string {
			t.Helper()
			return signedOver(t, emailtest.Signed(t, emailtest.Letter("--b\n\nx\n--b--", "Content-Type: multipart/mixed; boundary=b")), "From", "To", "Date")
		}, want: identity.AddressedRecipient},
		"a second signature covers To": {mail: func(t *testing.T) string {
			t.Helper()
			return signedOver(t, emailtest.Signed(t, emailtest.Letter("x")), "From")
		}, want: identity.AddressedRecipient},
		"a stranger's signature covers the To": {mail: func(t *testing.T) string {
			t.Helper()
			return emailtest.SignedAs(t, "To: echo@inbox.test\r\n"+signed("To: bob@far.test")(t), "far.test", "s1", emailtest.SenderKey())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(row.clock) } })
			_, key := DNSRecord("far.test", "s1", emailtest.SenderKey())
			s.names.Text("s1._domainkey.far.test", key)
			if row.spf != "" {
				s.names.Text("sender.test", row.spf)
			}
			from, to := "mallory@far.test", "echo@inbox.test"
			if row.from != "" {
				from = row.from
			}
			if row.to != "" {
				to = row.to
			}
			s.greet().send(from, []string{to}, row.mail(t), "250")
			s.meantAs(row.want)
		})
	}
}

// meantAs checks everything that depends on whether the only mail was meant for its agent.
func (s *setup) meantAs(want string) {
	s.t.Helper()
	in := s.engine.Only(s.t)
	sender, notes := in.Message.Sender, routeOf(s.t, in)
	if want != "" {
		if len(sender.Identities) != 1 || sender.Identities[0].Addressed() != want || !sender.Verified || len(in.Rejected) != 0 || !notes.Verified {
			s.t.Errorf("sender %+v, rejected %+v; want %s", sender, in.Rejected, want)
		}
		return
	}
	if len(sender.Identities) != 0 || sender.Verified || sender.AuthMethod != normalized.AuthNone || sender.KeyID != "" || notes.Verified {
		s.t.Errorf("the sender is proven: %+v", sender)
	}
	if len(in.Rejected) != 1 || in.Rejected[0].Code != identity.CodeNotAddressed || in.Rejected[0].Subject != "mailto:ann@sender.test" {
		s.t.Errorf("rejected %+v", in.Rejected)
	}
	if claims := string(sender.Profile.Extensions["email"]); !strings.Contains(claims, `"dmarc":{"result":"pass"`) {
		s.t.Errorf("claims %s", claims)
	}
}

func routeOf(t testing.TB, in exchange.Inbound) route {
	t.Helper()
	notes, ok := readRoute(in.Route)
	if !ok {
		t.Fatalf("route %s", in.Route)
	}
	return notes
}

// TestAMailCountsForEachAgentAlone: one transaction with several agents is a request to those whom its author named.
func TestAMailCountsForEachAgentAlone(t *testing.T) {
	s := start(t, nil)
	mail := emailtest.Signed(t, emailtest.Letter("x", "To: echo@inbox.test"))
	s.greet().send("eve@far.test", []string{"helper@inbox.test", "echo@inbox.test", "postmaster@inbox.test"}, mail, "250")
	got := map[string]bool{}
	for _, in := range s.engine.All() {
		got[in.Message.Recipient] = in.Message.Sender.Verified
	}
	if diff := cmp.Diff(map[string]bool{"@echo@inbox.test": true, "@helper@inbox.test": false}, got); diff != "" {
		t.Error(diff)
	}
	kept := s.mailbox.All(exchange.MailOrdinary)
	if len(kept) != 1 || kept[0].Proof != normalized.AuthNone || !strings.Contains(kept[0].Note, "anyone who has the mail could send it here") {
		t.Errorf("the operator got %+v", kept)
	}
}

// TestNothingOpensForAMailToOthers: what is proven elsewhere neither leads an answer away, nor widens it, nor lifts a limit.
func TestNothingOpensForAMailToOthers(t *testing.T) {
	var alive []string
	s, o := startOffice(t, func(o *Options) {
		o.RepliesToAll = func(string) bool { return true }
		o.MaxUnprovenBytes = 4 << 10
		o.Alive = func(_ context.Context, domain string) { alive = append(alive, domain) }
	})
	o.suppressed = []exchange.Suppression{{Address: "ann@sender.test", Kind: exchange.FailureHard}}
	w := s.greet()
	stolen := "To: echo@inbox.test\r\n" + emailtest.Signed(t, emailtest.Letter("x", "To: bob@far.test", "Cc: carl@sender.test", "Reply-To: ann@mail.sender.test"))
	w.send("eve@far.test", []string{"echo@inbox.test"}, stolen, "250")
	if notes := routeOf(t, s.engine.Only(t)); notes.ReplyTo != nil || notes.ReplyAll || notes.Unfollowed == "" {
		t.Errorf("route %+v", notes)
	}
	large := emailtest.Signed(t, emailtest.Letter(strings.Repeat("x", 70)+strings.Repeat("\n"+strings.Repeat("y", 70), 80), "To: bob@far.test"))
	w.send("eve@far.test", []string{"echo@inbox.test"}, large, "552 5.3.4")
	if len(alive) != 0 || len(o.lifted) != 0 {
		t.Errorf("alive %v, lifted %v", alive, o.lifted)
	}
}

// TestTroubleMayHideTheEnvelope: a lookup that fails is no reason to take an honest mail for a stolen one.
func TestTroubleMayHideTheEnvelope(t *testing.T) {
	s := start(t, nil)
	s.names.Break("sender.test")
	w := s.greet()
	mail := emailtest.Signed(t, emailtest.Letter("x", "To: bob@far.test"))
	for range maxTries {
		w.send("ann@sender.test", []string{"echo@inbox.test"}, mail, "451 4.7.5")
	}
	w.send("ann@sender.test", []string{"echo@inbox.test"}, mail, "250")
	s.meantAs("")
}

// TestASignedMailIsReadOnce: who has a mail to the agent can send it again, and gives it another id where he can.
func TestASignedMailIsReadOnce(t *testing.T) {
	spaced := func(mail string) string { return strings.Replace(mail, "Pay now", "Pay  now", 1) } // relaxed signatures pass over it
	for name, row := range map[string]struct {
		lines  []string
		names  []string
		spf    string // of sender.test
		again  func(string) string
		proven []bool
	}{
		"the same again":                                       {names: []string{"From", "To", "Date", "Message-ID"}, again: strings.Clone, proven: []bool{true}},
		"other white space":                                    {names: []string{"From", "To", "Date", "Message-ID"}, again: spaced, proven: []bool{true}},
		"id not signed, the same":                              {names: []string{"From", "To", "Date"}, again: strings.Clone, proven: []bool{true}},
		"id not signed, another one":                           {names: []string{"From", "To", "Date"}, again: anotherID, proven: []bool{true, false}},
		"id not signed, from a server of the domain":           {names: []string{"From", "To", "Date"}, spf: "v=spf1 ip4:127.0.0.1 -all", again: anotherID, proven: []bool{true, true}},
		"id not signed, white space in the date":               {names: []string{"From", "To", "Date"}, again: func(mail string) string { return strings.Replace(anotherID(mail), " +0000", "  +0000", 1) }, proven: []bool{true, false}},
		"id not signed, the date folded":                       {names: []string{"From", "To", "Date"}, again: func(mail string) string { return strings.Replace(anotherID(mail), " +0000", "\r\n\t+0000", 1) }, proven: []bool{true, false}},
		"id not signed, the date in letters of the other case": {names: []string{"From", "To", "Date"}, again: func(mail string) string { return strings.Replace(anotherID(mail), "Date: ", "DATE:", 1) }, proven: []bool{true, false}},
		"id and date not signed":                               {names: []string{"From", "To"}, again: func(mail string) string { return strings.Replace(anotherID(spaced(mail)), "Date: ", "Date:  ", 1) }, proven: []bool{true, false}},
		"the signed id cannot be read": {lines: []string{"Message-ID: <4711>"}, names: []string{"From", "To", "Date", "Message-ID"}, again: func(mail string) string {
			return "X-Via: far.test\r\n" + mail
		}, proven: []bool{true, false}},
		"no id, one is added": {lines: []string{"Message-ID:"}, names: []string{"From", "To", "Date"}, again: func(mail string) string {
			return "Message-ID: <new@far.test>\r\n" + strings.Replace(mail, "Message-ID:\r\n", "", 1)
		}, proven: []bool{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			w := s.greet()
			mail := signedOver(t, emailtest.Letter("Pay now, please", row.lines...), row.names...)
			from := "eve@far.test"
			if row.spf != "" {
				s.names.Text("sender.test", row.spf)
				from = "ann@sender.test"
			}
			w.send("ann@far.test", []string{"echo@inbox.test"}, mail, "250")
			w.send(from, []string{"echo@inbox.test"}, row.again(mail), "250")
			var proven []bool
			for _, in := range s.engine.All() {
				proven = append(proven, in.Message.Sender.Verified)
			}
			if !slices.Equal(proven, row.proven) {
				t.Errorf("proven %v; want %v", proven, row.proven)
			}
		})
	}
}

// TestAFieldCountsUnderTheProof: a header field of a proven mail has an effect only if the signature covers it or the author's own server
// sent the mail. Anyone who hands the mail on can add the other fields.
func TestAFieldCountsUnderTheProof(t *testing.T) {
	const own = "01936f2a-0000-7000-8000-000000000001@inbox.test"
	names := []string{"From", "To", "Cc", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type", "In-Reply-To", "References", "Reply-To"}
	joins := func(in, first exchange.Inbound) bool { return in.Message.ThreadID == first.Message.ThreadID }
	for field, row := range map[string]struct {
		value  string
		counts func(in, first exchange.Inbound) bool
	}{
		"In-Reply-To": {"<m1@sender.test>", func(in, first exchange.Inbound) bool {
			return joins(in, first) && in.Message.InReplyTo == "m1@sender.test"
		}},
		"References": {"<m1@sender.test> <" + own + ">", func(in, first exchange.Inbound) bool {
			return joins(in, first) && in.Message.InReplyTo == own && len(routeOf(t, in).References) == 2 && !in.AnswerOf.IsZero()
		}},
		"Message-ID": {"<root@x.test>", joins}, // the root of the first mail
		"Reply-To":   {"desk@sender.test", func(in, _ exchange.Inbound) bool { return routeOf(t, in).ReplyTo != nil }},
		"Subject": {"Pay eve", func(in, _ exchange.Inbound) bool {
			return strings.Contains(in.Message.Parts[0].Content, "Pay eve") && in.Message.Surface.Subject == "Pay eve" && routeOf(t, in).Subject == "Pay eve"
		}},
	} {
		for _, by := range []struct {
			name, from string
			signed     bool
			counts     bool
		}{
			{"signed", "eve@far.test", true, true},
			{"not signed", "eve@far.test", false, false},
			{"not signed, sent by the author", "ann@sender.test", false, true},
		} {
			t.Run(field+" "+by.name, func(t *testing.T) {
				s := start(t, nil)
				s.names.Text("sender.test", "v=spf1 ip4:127.0.0.1 -all")
				w := s.greet()
				w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("My PIN is 4711.", "References: <root@x.test>")), "250")
				first := s.engine.Only(t)

				lines := []string{"Cc: eve@far.test", field + ": " + row.value}
				if field != "Message-ID" {
					lines = append(lines, "Message-ID: <m2@sender.test>")
				}
				covered := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == field && !by.signed })
				w.send(by.from, []string{"echo@inbox.test"}, signedOver(t, emailtest.Letter("Hello both", lines...), covered...), "250")

				in := s.engine.All()[1]
				if counts := row.counts(in, first); counts != by.counts || !in.Message.Sender.Verified {
					t.Errorf("counts %v, sender proven %v: %+v", counts, in.Message.Sender.Verified, in.Message)
				}
			})
		}
	}
}

// TestAThreadTagCountsForWhomTheAuthorWroteTo: an address that was seen in an earlier mail opens nothing for a mail that its author sent
// to the agent's plain address.
func TestAThreadTagCountsForWhomTheAuthorWroteTo(t *testing.T) {
	s := start(t, func(o *Options) { o.ThreadTags = true })
	w := s.greet()
	w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("My PIN is 4711.")), "250")
	first := s.engine.Only(t)
	reply := replyTo(first, normalized.Text("an answer"))
	s.engine.replies[reply.ID+"@inbox.test"] = 0
	back := s.adapter.outbox.renderer.threadAddress(reply.ID, "echo")

	for i, row := range []struct {
		to    string
		joins bool
	}{{"echo@inbox.test", false}, {back, true}} {
		mail := emailtest.Letter("Hello both", "To: "+row.to, "Cc: eve@far.test", fmt.Sprintf("Message-ID: <again%d@sender.test>", i))
		w.send("eve@far.test", []string{back}, emailtest.Signed(t, mail), "250")
		if in := s.engine.All()[i+1]; (in.Message.ThreadID == first.Message.ThreadID) != row.joins || !in.Message.Sender.Verified {
			t.Errorf("signed to %s: %+v", row.to, in.Message)
		}
	}
}

// TestAnAnswerNamesOneParent: who answers several mails, or says so in a way that cannot be read, answers none.
func TestAnAnswerNamesOneParent(t *testing.T) {
	const own = "01936f2a-0000-7000-8000-000000000001@inbox.test"
	s := start(t, nil)
	w := s.greet()
	for i, row := range []struct {
		lines []string
		want  string
	}{
		{[]string{"In-Reply-To: <" + own + ">"}, own},
		{[]string{"In-Reply-To: <bait@far.test>", "References: <" + own + ">"}, "bait@far.test"},
		{[]string{"References: <m0@sender.test> <" + own + ">"}, own},
		{[]string{"References: <" + own + "> <bait@far.test>"}, ""},
		{[]string{"In-Reply-To: <one@far.test> <two@far.test>", "References: <" + own + ">"}, ""},
		{[]string{"In-Reply-To: <no id>", "References: <" + own + ">"}, ""},
		{nil, ""},
	} {
		mail := emailtest.Letter("Approve", append(row.lines, fmt.Sprintf("Message-ID: <a%d@sender.test>", i))...)
		w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, mail), "250")
		if got := s.engine.All()[i].Message.InReplyTo; got != row.want {
			t.Errorf("%v: answers %q; want %q", row.lines, got, row.want)
		}
	}
}

func anotherID(mail string) string {
	return strings.Replace(mail, "<m1@sender.test>", fmt.Sprintf("<%d@sender.test>", 2), 1)
}

// TestOneOfTwoSignaturesIsTakenAway: anyone who has a mail with two signatures can resend it with one of them, under another Message-ID if that one
// does not cover it.
func TestOneOfTwoSignaturesIsTakenAway(t *testing.T) {
	strict, loose := []string{"From", "To", "Date", "Message-ID"}, []string{"From", "To", "Date"}
	for name, order := range map[string][2][]string{"the strict one is on top": {loose, strict}, "the strict one is below": {strict, loose}} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			w := s.greet()
			letter := emailtest.Letter("Pay now, please")
			both := signedOver(t, signedOver(t, letter, order[0]...), order[1]...)
			w.send("ann@far.test", []string{"echo@inbox.test"}, both, "250")
			w.send("eve@far.test", []string{"echo@inbox.test"}, anotherID(signedOver(t, letter, loose...)), "250")
			all := s.engine.All()
			if len(all) != 2 || !all[0].Message.Sender.Verified || all[1].Message.Sender.Verified {
				t.Errorf("%d mails, the repeat is proven: %v", len(all), all[len(all)-1].Message.Sender.Verified)
			}
		})
	}
}

// TestAMailOfPartsIsReadOnce: it came from the author's server, which proves it. Without the fields that make its parts it is one text, for which a
// signature counts that does not cover them.
func TestAMailOfPartsIsReadOnce(t *testing.T) {
	s := start(t, nil)
	s.names.Text("sender.test", "v=spf1 ip4:127.0.0.1 -all")
	w := s.greet()
	const parts = `Content-Type: multipart/alternative; boundary="b"`
	mail := signedOver(t, emailtest.Letter("--b\n\nPay now, please\n--b--", parts), "From", "To", "Cc", "Subject", "Date")
	if !strings.Contains(mail, parts+"\r\n") {
		t.Fatal(mail)
	}
	w.send("ann@sender.test", []string{"echo@inbox.test"}, mail, "250")
	w.send("eve@far.test", []string{"echo@inbox.test"}, strings.Replace(anotherID(mail), parts+"\r\n", "", 1), "250")
	all := s.engine.All()
	if len(all) != 2 || !all[0].Message.Sender.Verified || all[1].Message.Sender.Verified {
		t.Errorf("%d mails, the repeat is proven: %v", len(all), all[len(all)-1].Message.Sender.Verified)
	}
}
