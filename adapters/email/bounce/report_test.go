package bounce

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/internal/capability"
)

func FuzzReport(f *testing.F) {
	f.Add(emailtest.Report("Original-Envelope-Id: x\n", emailtest.ReportOn("ann@sender.test", "failed", "5.1.1")))
	f.Add(emailtest.Complaint("Original-Mail-From: <a@b.test>\n"))
	f.Add("Subject: failure notice\r\n\r\nHi. This is qmail.\r\n\r\n<a@b.test>:\r\nno (#5.1.1)\r\n\r\n--- Below\r\n")
	for _, mail := range corpus(f) {
		f.Add(mail)
	}
	f.Add("Content-Type: message/delivery-status\r\n\r\nFinal-Recipient: ;\r\n\r\n\r\nStatus: 9.9.9\r\n")
	f.Add("Content-Type: multipart/report; boundary=\"\"\r\n\r\n--\r\n")
	f.Fuzz(func(t *testing.T, mail string) {
		fields, body, err := message.Split([]byte(mail))
		if err != nil {
			return
		}
		if report, found := qmailReport(fields, body); found && (len(report.Recipients) > maxReported || report.Recipients[0].Address == "") {
			t.Errorf("%+v", report)
		}
		report, found := Read(fields, body)
		if !found && len(report.Recipients) > 0 {
			t.Error("recipients without a report")
		}
		if len(report.Recipients) > maxReported {
			t.Errorf("%d recipients", len(report.Recipients))
		}
		for _, one := range report.Recipients {
			if one.Status != "" && statusCode(one.Status) != one.Status || strings.ContainsAny(one.Diagnostic, "\r\n") || len(one.Diagnostic) > 300 {
				t.Errorf("%+v", one)
			}
		}
	})
}

func TestManyReportsAreOneMail(t *testing.T) {
	groups := make([]string, 5000)
	for i := range groups {
		groups[i] = emailtest.ReportOn(fmt.Sprintf("u%d@sender.test", i), "failed", "5.1.1")
	}
	fields, body, err := message.Split([]byte(emailtest.Report("", groups...)))
	if err != nil {
		t.Fatal(err)
	}
	if report, found := Read(fields, body); !found || len(report.Recipients) != maxReported {
		t.Errorf("%d recipients are read", len(report.Recipients))
	}
}

// corpus returns the reports in testdata by name: the forms that servers write.
func corpus(t testing.TB) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.eml")
	if err != nil || len(files) == 0 {
		t.Fatalf("corpus: %d files, %v", len(files), err)
	}
	mails := map[string]string{}
	for _, file := range files {
		mail, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		mails[strings.TrimSuffix(filepath.Base(file), ".eml")] = string(mail)
	}
	return mails
}

func TestCorpus(t *testing.T) {
	want := map[string]Report{
		"postfix": {EnvelopeID: "token", Recipients: []Recipient{{
			Address: "ann@sender.test", Original: "ann+inbox@sender.test", Action: "failed", Status: "5.1.1",
			Diagnostic: "550 5.1.1 <ann@sender.test>: Recipient address rejected: User unknown",
		}}},
		"exim":              {Recipients: []Recipient{{Address: "ann@sender.test", Action: "failed", Status: "5.1.1", Diagnostic: "550-5.1.1 The email account 550 5.1.1 does not exist 192.0.2.1"}}},
		"notes":             {Recipients: []Recipient{{Address: "ann@sender.test", Action: "failed", Status: "5.1.2", Diagnostic: "no match in 5.1.2 directory"}}},
		"qmail":             {Recipients: []Recipient{{Address: "bob@sender.test", Action: "failed", Status: "5.1.1", Diagnostic: "Sorry, no mailbox here by that name. (#5.1.1)"}, {Address: "eve@sender.test", Action: "failed", Status: "5.0.0", Diagnostic: "Gone."}}},
		"failed-recipients": {Recipients: []Recipient{{Address: "ann@sender.test", Action: "failed", Status: "5.0.0", Diagnostic: "Mail failed"}, {Address: "bob@sender.test", Action: "failed", Status: "5.0.0", Diagnostic: "Mail failed"}}},
		"complaint":         {Complaint: true, MailFrom: "<bounce+token@inbox.test>", Recipients: []Recipient{{Address: "ann@sender.test", Diagnostic: "abuse"}}},
		"absence":           {},
	}
	mails := corpus(t)
	if len(mails) != len(want) {
		t.Errorf("%d files for %d reports", len(mails), len(want))
	}
	for name, mail := range mails {
		fields, body, err := message.Split([]byte(mail))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, is := Read(fields, body)
		if !is {
			got, is = ReadText(fields, body)
		}
		got.Returned = nil
		if diff := cmp.Diff(want[name], got); diff != "" || is != (len(got.Recipients) > 0) {
			t.Errorf("%s: a report is %t\n%s", name, is, diff)
		}
	}
}

func TestReturnPathSpeaksForOneRecipient(t *testing.T) {
	const delivery = "01936f2a-0000-7000-8000-000000000101"
	both := []string{"ann@a.test", "bob@a.test"}
	ours := NewTokens([]byte("key"), "inbox.test")
	token, from := ours.ReturnPath(delivery, "bob@a.test")
	local, _, _ := strings.Cut(from, "@")
	pass, found := ours.PassIn(Report{MailFrom: "<" + strings.ToUpper(from) + ">"})
	if len(local) > 64 || !found || pass.DeliveryID != delivery || pass.Old || ours.RecipientOf(pass, both) != "bob@a.test" {
		t.Errorf("%s: %+v, %v, for %q", from, pass, found, ours.RecipientOf(pass, both))
	}
	if named, is := Named(from); named != delivery || !is {
		t.Errorf("%s names %q", from, named)
	}

	for name, strange := range map[string]Pass{
		"the token of another server":    {DeliveryID: delivery, token: mustPass(t, NewTokens([]byte("another"), "inbox.test"), delivery).token},
		"the token of another delivery":  {DeliveryID: strings.Replace(delivery, "101", "102", 1), token: pass.token},
		"the token of another recipient": {DeliveryID: delivery, token: mustPass(t, ours, delivery).token},
		"no token":                       {DeliveryID: delivery},
	} {
		if got := ours.RecipientOf(strange, both); got != "" {
			t.Errorf("%s is good for %s", name, got)
		}
	}

	if token, from := ours.ReturnPath("7", "ann@a.test"); token != "" || from != "" {
		t.Errorf("a delivery without a proper id: %s, %s", token, from)
	}
	if _, valid := ours.Verify("another purpose", "bob@a.test", token); valid {
		t.Error("a token is taken for another purpose")
	}
}

// mustPass returns the pass of somebody who is no recipient.
func mustPass(t *testing.T, tokens *Tokens, delivery string) Pass {
	t.Helper()
	_, from := tokens.ReturnPath(delivery, "eve@a.test")
	local, _, _ := strings.Cut(from, "@")
	pass, is := tokens.Pass(local)
	if !is {
		t.Fatalf("%s is no return path", from)
	}
	return pass
}

func TestReturnPathsOfOlderVersions(t *testing.T) {
	const delivery = "01936f2a-0000-7000-8000-000000000101"
	ours := NewTokens([]byte("key"), "inbox.test")
	id := uuid.MustParse(delivery)
	old := encoded(id) + capability.Mint([]byte("key"), former(purposeReturn, id))
	pass, is := ours.Pass("bounce+" + strings.ToUpper(old))
	if !is || !pass.Old || pass.DeliveryID != delivery || ours.RecipientOf(pass, []string{"ann@a.test"}) != "" {
		t.Errorf("%+v, %v", pass, is)
	}
	if _, is := NewTokens([]byte("another"), "inbox.test").Pass("bounce+" + old); is {
		t.Error("the old token of another server is taken")
	}
}

// TestTokensOfOlderVersions has tokens as the version before decision 0137 signed them: people have them in mails.
func TestTokensOfOlderVersions(t *testing.T) {
	const id = "0191f3a0-0000-7000-8000-000000000001"
	ours := NewTokens([]byte("kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"), "inbox.test")
	thread, path := "agi7hiaaabyabaaaaaaaaaaaaeitts55cw3tsd4jhg", "agi7hiaaabyabaaaaaaaaaaaaecfstytqydm7rgkwe"
	if got, valid := ours.Verify("t.", "shop", strings.ToUpper(thread)); !valid || got != id {
		t.Errorf("the thread of %q, %v", got, valid)
	}
	if _, valid := ours.Verify("t.", "shop", path); valid {
		t.Error("a return path is the tag of a thread")
	}
	if pass, is := ours.Pass("bounce+" + path); !is || !pass.Old || pass.DeliveryID != id {
		t.Errorf("the return path is %+v, %v", pass, is)
	}
	if _, is := ours.Pass("bounce+" + thread); is {
		t.Error("the tag of a thread is a return path")
	}
}

func TestTokenIsForOneMailbox(t *testing.T) {
	const id = "0191f3a0-0000-7000-8000-000000000001"
	ours := NewTokens([]byte("key"), "inbox.test")
	token := ours.Sign("t.", "Shop", uuid.MustParse(id))
	if got, valid := ours.Verify("t.", "shop", strings.ToUpper(token)); !valid || got != id {
		t.Errorf("%q, %v", got, valid)
	}
	for name, test := range map[string]struct {
		tokens                  *Tokens
		purpose, mailbox, token string
	}{
		"another mailbox": {ours, "t.", "doctor", token},
		"another purpose": {ours, "", "shop", token},
		"another server":  {NewTokens([]byte("another"), "inbox.test"), "t.", "shop", token},
		"another id":      {ours, "t.", "shop", ours.Sign("t.", "shop", uuid.Max)[:tokenIDLength] + token[tokenIDLength:]},
		"a short token":   {ours, "t.", "shop", token[:len(token)-1]},
	} {
		if got, valid := test.tokens.Verify(test.purpose, test.mailbox, test.token); valid {
			t.Errorf("%s: the token is good for %s", name, got)
		}
	}
}
