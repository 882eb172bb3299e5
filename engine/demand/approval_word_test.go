package demand

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/normalized"
)

func saying(texts ...string) (message normalized.Message) {
	for _, text := range texts {
		message.Parts = append(message.Parts, normalized.Text(text))
	}
	return message
}

func TestDecisionsAreExactWords(t *testing.T) {
	const quoted = "\n\nOn Monday, 3 March 2026, Booker <booker@inbox.test> wrote:\n> deny\n> Answer with the one word"
	for text, want := range map[string]Decision{
		"approve":          {Grant: true},
		"Approve.":         {Grant: true},
		"  DENY!\n":        {},
		"yes":              {Grant: true, Short: true},
		"No":               {Short: true},
		"ok":               {Grant: true, Short: true},
		"approve 7K3MQ2":   {Grant: true, Code: "7k3mq2"},
		"deny #7k3mq2":     {Code: "7k3mq2"},
		"approve 7OIL23":   {Grant: true, Code: "701123"},
		"approve" + quoted: {Grant: true},
		"approve\n\nLundi, Booker a écrit :\n> deny":                                  {Grant: true},
		"approve\n\n-- \nOwner\nChief":                                                {Grant: true},
		"approve\n\nSent from my phone":                                               {Grant: true},
		"deny\n________________________________\nFrom: Booker\nSubject: x\n\napprove": {},
		"Subject: Booker needs a decision\n\napprove":                                 {Grant: true},
		"@booker approve":                      {Grant: true},
		"@booker@inbox.test\n\napprove 7k3mq2": {Grant: true, Code: "7k3mq2"},
		"approve @booker@inbox.test":           {Grant: true},
		"approve\r\n\r\n> deny":                {Grant: true},
	} {
		got, ok := ReadDecision(saying(text))
		if !ok || got != want {
			t.Errorf("%q is read as %+v, %v; want %+v", text, got, ok, want)
		}
	}
}

func TestOtherTextsAreOrdinaryMessages(t *testing.T) {
	for _, text := range []string{
		"", "I approve", "approve it", "approve friday", "ok google", "yes please", "approve 7k3mq", "approve 7k3mq22", "don't approve", "approve deny",
		"approve, but only five dollars", "> approve", "approve\nSecond thoughts: no", "approved?", "Subject: approve", "-- \napprove",
		"On Monday you wrote:\n> x\napprove", strings.Repeat("approve ", 10_000),
	} {
		if got, ok := ReadDecision(saying(text)); ok {
			t.Errorf("%.40q is read as the decision %+v", text, got)
		}
	}
	if _, ok := ReadDecision(saying("approve", "and more")); ok {
		t.Error("a message of two texts is a decision")
	}
	logo := saying("approve")
	logo.Parts = append(logo.Parts, normalized.Part{Kind: normalized.PartFile, Name: "logo.png"})
	if _, ok := ReadDecision(logo); !ok {
		t.Error("the logo of a signature makes it an ordinary message")
	}
}

func TestCodesComeBackAsTheyAreTyped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		code := newCode()
		typed := code
		if rapid.Bool().Draw(t, "upper") {
			typed = strings.ToUpper(code)
		}
		got, ok := ReadDecision(saying("approve " + typed))
		if !ok || got.Code != code || !isCode(code) {
			t.Fatalf("the code %q is read as %+v, %v", code, got, ok)
		}
	})
}

func FuzzReadDecision(f *testing.F) {
	for _, text := range []string{"approve", "deny 7k3mq2\n\n> approve", "Subject: x\n\nyes", "@a@b ok", "no\n-- \nx", "ok\n\nAnn wrote:\n>"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, ok := ReadDecision(saying(text))
		if !ok && d != (Decision{}) {
			t.Errorf("%q is no decision and gives %+v", text, d)
		}
		if ok && !strings.ContainsAny(strings.ToLower(text), "adeyno") {
			t.Errorf("%q is a decision", text)
		}
	})
}
