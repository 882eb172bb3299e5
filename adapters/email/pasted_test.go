package email

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/normalized"
)

// TestPastedMailsAreNew: in a known conversation only what repeats it is old, whatever it looks like.
func TestPastedMailsAreNew(t *testing.T) {
	const question, reply = "I would like to buy a lamp, please tell me which ones you have.", "We have three blue lamps in our shop. Which size do you want?"
	asked := 0
	s := start(t, func(o *Options) {
		o.Said = func(context.Context, string, string) ([]string, error) {
			asked++
			return []string{reply, question}, nil
		}
	})
	w := s.greet()
	w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter(question, "Message-ID: <first@sender.test>")), "250")
	s.engine.replies["r1@inbox.test"] = 0
	header := "From: Lamp Desk\nSent: Saturday, 21 November 2026 12:00\nTo: Ann\nSubject: Re: A question\n\n"
	for i, row := range []struct {
		name, body string
		fresh      string // empty = all of it is new
		compared   int
	}{
		{"the answer without marks", "The small one.\n\n" + header + reply, "The small one.", 1},
		{"the answer below a line", "The small one.\n\n-----Original Message-----\n" + header + reply, "The small one.", 1},
		{"a mail of someone else", "Please answer this one, too.\n\n" + header + "Dear Ann, my chair has only two legs and I fell off it. When do I get another one?\n\nYours, Bo", "", 1},
		{"the same below a line", "Please answer this one, too.\n\n-----Original Message-----\n" + header + "Dear Ann, my chair has only two legs and I fell off it.", "", 1},
		{"a mail to be written", "Please write this mail for me:\n\nFrom: me\nTo: Bob <bob@they.example>\nDate: tomorrow\nSubject: Offer\n\nDear Bob, two hundred euros.", "", 0},
		{"the answer of our mailbox", "Yes.\n\n" + strings.Replace(header, "Lamp Desk", "Echo <echo@inbox.test>", 1) + "Confirm this: https://inbox.test/x", "Yes.", 0},
		{"a marked quotation", "The small one.\n\nOn Sat, 21 Nov 2026 at 12:00, Echo <echo@inbox.test> wrote:\n> " + reply, "The small one.", 0},
		{"two choices", "Option A: red\n--\nOption B: blue\n\nWhich one?", "", 0},
	} {
		before := asked
		mail := emailtest.Letter(row.body, fmt.Sprintf("Message-ID: <p%d@sender.test>", i), "In-Reply-To: <r1@inbox.test>", "Subject: Re: A question")
		w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, mail), "250")
		all := s.engine.All()
		part := all[len(all)-1].Message.Parts[0]
		if part.Kind != normalized.PartText || part.New != row.fresh || part.Content != row.body || asked-before != row.compared {
			t.Errorf("%s: new %q of %q, compared %d times; want %q", row.name, part.New, part.Content, asked-before, row.fresh)
		}
	}
}
