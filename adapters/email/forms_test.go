package email

import (
	"bytes"
	"html"
	"slices"
	"strings"
	"testing"

	"inbox/adapters/email/message"
	"inbox/adapters/email/text"
	"inbox/exchange"
	"inbox/internal/markup/markuptest"
	"inbox/normalized"
	"inbox/policypart"
)

// sentForms sends an answer by mail and returns its text and HTML parts as a mail program decodes them. A mail without HTML has none.
func sentForms(t *testing.T, part normalized.Part) (plain, content string) {
	t.Helper()
	w := &renderer{options: &Options{Present: func(part policypart.Part) policypart.Part { return part }}}
	made, err := w.composeBody(t.Context(), exchange.Reply{Response: normalized.Response{Parts: []normalized.Part{part}}}, route{}, audience{})
	if err != nil {
		t.Fatal(err)
	}
	var mail bytes.Buffer
	if err := writeMail(&mail, []headerLine{{"MIME-Version", "1.0"}}, made, "seed"); err != nil {
		t.Fatal(err)
	}
	fields, body, err := message.Split(mail.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	root, err := (&message.Parser{}).Parse(fields, body, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(root.Children) == 0 {
		return string(root.Decode()), ""
	}
	return string(root.Children[0].Decode()), string(root.Children[1].Decode())
}

func textPart(one markuptest.Answer) normalized.Part {
	return normalized.Part{Kind: normalized.PartText, MIME: one.MIME, Content: one.Content}
}

func TestMailsSayWhatAnswersSay(t *testing.T) {
	markuptest.SameOn(t, func(one markuptest.Answer) string {
		plain, content := sentForms(t, textPart(one))
		if content != "" {
			_, shown, _ := strings.Cut(content, "</head>") // the title is that of a window
			return shown
		}
		page := html.EscapeString(plain) // as mail programs show a text
		for _, address := range markuptest.Shown(plain) {
			page = strings.Replace(page, html.EscapeString(address), `<a href="`+html.EscapeString(address)+`">`+html.EscapeString(address)+"</a>", 1)
		}
		return page
	})
}

func TestTextsOfMailsSayWhatAnswersSay(t *testing.T) {
	markuptest.SameTextOn(t, text.Readable, func(one markuptest.Answer) string {
		plain, _ := sentForms(t, textPart(one))
		return plain
	})
}

func TestPolicyLinks(t *testing.T) {
	both := func(part normalized.Part) []string {
		plain, content := sentForms(t, part)
		shown := markuptest.Shown(plain)
		if content == "" {
			return shown
		}
		if _, addresses := markuptest.Read(t, content); !slices.Equal(addresses, shown) {
			t.Fatalf("the HTML leads to %q, the text to %q", addresses, shown)
		}
		return shown
	}
	markuptest.PolicyLinks(t, func(one markuptest.Answer) []string { return both(textPart(one)) })
	markuptest.PolicyParts(t, func(part policypart.Part) []string {
		return both(normalized.Part{Kind: normalized.PartPolicy, Policy: &part})
	})
}
