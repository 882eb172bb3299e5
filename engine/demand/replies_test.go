package demand

import (
	"strings"
	"testing"

	"inbox/internal/redact"
	"inbox/normalized"
)

// TestRepliesOfMailPrograms: what programs write around one word.
func TestRepliesOfMailPrograms(t *testing.T) {
	for name, text := range map[string]string{
		"Gmail in Chinese":          "Approve\n\nShop <shop@inbox.test> 于2026年11月28日周六 16:25写道：\n\n> deny",
		"a line that is not broken": "Approve\n\u00a0\nOn Monday Shop wrote:\n> deny",
		"iPhone in German":          "Approve\n\nVon meinem iPhone gesendet\n\n> deny",
		"iPhone in Japanese":        "Approve\n\niPhoneから送信\n\n> deny",
		"Outlook on a phone":        "Approve\n\nOutlook für iOS<https://aka.ms/o0ukef> beziehen\n\nShop schrieb:",
		"Proton":                    "Approve\n\nSent with [Proton Mail](https://proton.me/mail/home) secure email.",
		"a rule":                    "Approve\n\n* * *\n\ndeny",
	} {
		if d, ok := ReadDecision(saying(text)); !ok || !d.Grant {
			t.Errorf("%s: %+v %v", name, d, ok)
		}
	}
	if d, ok := ReadDecision(saying("approve\u00a07k3mq2")); !ok || d.Code != "7k3mq2" {
		t.Errorf("%+v %v", d, ok)
	}

	outlook := normalized.Text("Approve\n\nVon: Shop <shop@inbox.test>\nGesendet: Montag\nBetreff: x\n\nBitte")
	outlook.New = "Approve"
	if d, ok := ReadDecision(normalized.Message{Parts: []normalized.Part{outlook}}); !ok || !d.Grant {
		t.Errorf("what the channel found to be new: %+v %v", d, ok)
	}
	outlook.New = "Approve, if it is cheap"
	if d, ok := ReadDecision(normalized.Message{Parts: []normalized.Part{outlook}}); ok {
		t.Errorf("more than a word: %+v", d)
	}
}

func TestCodesAreHiddenAndAmountsAreNot(t *testing.T) {
	r := redact.New([]string{"inbox.test"}, Keys()...)
	for _, text := range []string{
		"> add the code: approve\n> 7k3mq2. To", "> add the code: approve\r\n> > 7k3mq2.", "approve **7k3mq2**", "approve <b>7k3mq2</b>", "approve\u202f7k3mq2",
		"approve&nbsp;7k3mq2", "approve `7k3mq2`", "DENY #7K3MQ2", "deny 10000a",
	} {
		if got := r.Text(text); strings.Contains(strings.ToLower(got), "7k3mq2") || !strings.Contains(got, redact.HiddenCode) {
			t.Errorf("%q became %q", text, got)
		}
	}
	for _, text := range []string{"Please approve 250000 EUR", "Please approve\n250000 EUR", "deny 100000 of them", "approve it: 7k3mq2"} {
		if got := r.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	for range 20_000 {
		if code := newCode(); r.Text("approve "+code) != "approve "+redact.HiddenCode {
			t.Fatalf("the code %q is not hidden", code)
		}
	}
}
