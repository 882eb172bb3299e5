package text

import (
	"strings"
	"testing"
)

// TestRequestsAreNotCutAway: people write lines that look like the edge of an old mail, too.
func TestRequestsAreNotCutAway(t *testing.T) {
	for name, text := range map[string]string{
		"a mail to be written":    "Please write this mail for me:\n\nFrom: me\nTo: Bob <bob@they.example>\nDate: tomorrow\nSubject: Offer\n\nDear Bob, two hundred euros.",
		"two choices":             "Option A: red\n--\nOption B: blue\n\nWhich one?",
		"two choices, exact mark": "Option A: red\n-- \nOption B: blue\n\nWhich one?",
		"items without a name":    "Two red lamps\n--\nthree blue lamps, four green ones\n--\nnothing else",
		"an offer":                "Take one.\n--\nPrice: 20 € and delivery in 4711 days",
		"a question below":        "The first part.\n-- \nWhat is the second one?",
	} {
		if got := fresh(text, "Re: x", true); got != text {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, row := range map[string]struct{ text, sender, want string }{
		"the name of the sender":   {"Words\n--\nAnn Example\nSales", "Ann Example <ann@x.test>", "Words"},
		"a name from the address":  {"Words\n--\nann", "ann@x.test", "Words"},
		"the firm and a telephone": {"Words\n--\nLamps Ltd\n+43 1 555 123 4", "Ann <ann@x.test>", "Words"},
		"an address alone":         {"Words\n--\nann@lamps.test", "Bo <bo@x.test>", "Words"},
		"another's name":           {"Words\n--\nBlue", "Ann Example <ann@x.test>", "Words\n--\nBlue"},
	} {
		if got, _ := parted(row.text, "Re: x", row.sender, true); got != row.want {
			t.Errorf("%s: %q; want %q", name, got, row.want)
		}
	}
	const pasted = "What does this mean?\n\n-----Original Message-----\nFrom: Bo\nSent: Saturday\nTo: Ann\nSubject: x\n\nold words"
	if got := fresh(pasted, "A question", false); got != pasted {
		t.Errorf("a mail that answers nothing has an old part: %q", got)
	}
}

// TestRepeats compares what looks like an old mail with a conversation.
func TestRepeats(t *testing.T) {
	before := []string{"We have **three** blue lamps in [our shop](https://lamps.test). Which size do you want?\n\nYours, Lamp Desk", "Good day, I would like to buy a lamp."}
	header := "From: Desk\nSent: Saturday, 21 November 2026\nTo: Ann\nSubject: Lamp\n\n"
	for name, row := range map[string]struct {
		unmarked string
		want     bool
	}{
		"the answer":                  {header + "We have three blue lamps in our shop. Which size do you want?\n\nYours, Lamp Desk\n", true},
		"the answer, wrapped":         {header + "We have three blue\nlamps in our shop\n<https://lamps.test>. Which\nsize do you want?", true},
		"the answer over older mails": {header + "We have three blue lamps in our shop. Which size do you want?\n\nYours, Lamp Desk\n\n" + header + strings.Repeat("unknown words of others ", 4), true},
		"the sender's own mail":       {header + "Good day, I would like to buy a lamp.", true},
		"another mail":                {header + "Dear Bob, two hundred euros.", false},
		"another mail about lamps":    {header + "Dear Bob, we have three blue lamps, but the shop of my brother has many more, and he gives them away for free.", false},
		"one word":                    {header + "lamp", true},
		"one other word":              {header + "chair", false},
		"a header and no words":       {header, true},
	} {
		if got := Repeats(row.unmarked, before); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
