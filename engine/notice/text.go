package notice

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/clip"
)

// Bounds of one notice.
const (
	maxText    = 12 << 10
	maxReason  = 300
	maxLines   = 40 // subjects of one kind that a digest names; the counts have them all
	timeLayout = "2006-01-02 15:04 MST"
)

// words are what is said about a kind.
type words struct {
	one, many string // of events: "turn failed", "turns failed"
	began     string // title of what lasts, or of a burst; %s is the subject
	ended     string
	look      string // how to look at it; %s is the subject
	show      string // how to look at one example; %s is its id
}

var wordsOf = map[string]words{
	exchange.NoticeTurn: {
		"turn failed", "turns failed", "Many turns of %s fail", "No more turns of %s fail in a burst",
		"inbox retry --agent %s --failed --since 24h --dry-run", "inbox show %s",
	},
	exchange.NoticeDelivery: {
		"delivery was given up", "deliveries were given up", "Many deliveries of %s are given up", "No more deliveries of %s are given up in a burst",
		"inbox deliveries list --state dead", "inbox show %s",
	},
	exchange.NoticeJob: {
		"job was given up", "jobs were given up", "Many jobs of the kind %s are given up", "No more jobs of the kind %s are given up in a burst",
		"the log names them and says why", "",
	},
	exchange.NoticeHeld: {"message was held", "messages were held", "", "", "inbox held list", "inbox show %s"},
	exchange.NoticeApproval: {
		"approval was asked for", "approvals were asked for", "", "", "inbox approvals list", "inbox approvals show %s",
	},
	exchange.NoticeReport: {"report came", "reports came", "", "", "inbox reports list", ""},
	exchange.NoticeMail:   {"mail came for you", "mails came for you", "", "", "inbox mail list", "inbox mail show %s"},
	exchange.NoticeBounce: {
		"mail came back or was complained about", "mails came back or were complained about", "", "", "inbox suppressions list", "inbox show %s",
	},
	exchange.NoticeDestination: {
		"destination was given up", "destinations were given up", "", "", "inbox deliveries list --state dead", "",
	},
	exchange.NoticeBackEnd: {
		"short outage of a back end", "short outages of back ends", "The back end of %s is down", "The back end of %s is back",
		"inbox audit list --code 'backend:*'", "",
	},
	exchange.NoticeCertificate: {
		"short trouble with a certificate", "short troubles with certificates", "Certificate trouble: %s", "The certificate is good again: %s",
		"inbox doctor", "",
	},
	exchange.NoticeDisk: {"disk was short of room", "times a disk was short of room", "No room on the disk: %s", "There is room on the disk again: %s", "inbox doctor", ""},
	exchange.NoticeProbe: {
		"time a node did not answer itself", "times a node did not answer itself", "A node does not answer itself: %s", "A node answers itself again: %s",
		"inbox ready", "",
	},
	exchange.NoticeDatabase: {
		"time the database refused messages", "times the database refused messages", "The database is damaged or refuses messages: %s",
		"The database takes messages again: %s", "inbox doctor", "",
	},
}

// document is what a webhook gets. It says the same as the text.
type document struct {
	Notice  string                 `json:"notice"` // id
	Domain  string                 `json:"domain"`
	Phase   string                 `json:"phase"`
	Kind    string                 `json:"kind,omitempty"`
	Subject string                 `json:"subject,omitempty"`
	Title   string                 `json:"title"`
	Text    string                 `json:"text"`
	At      time.Time              `json:"at"`
	Count   int64                  `json:"count,omitempty"` // of a burst so far, or in all when it ended
	Since   time.Time              `json:"since,omitzero"`
	Counts  []exchange.NoticeTally `json:"counts,omitempty"` // of a digest
}

// finished fills in what follows from the rest.
func finished(n exchange.Notice, d document) (exchange.Notice, error) {
	n.Text = clip.Marked(n.Text, maxText, "\n…")
	d.Notice, d.Phase, d.Kind, d.Subject, d.Title, d.Text, d.At = n.ID, n.Phase, n.Kind, n.Subject, n.Title, n.Text, n.CreatedAt
	body, err := json.Marshal(d)
	if err != nil {
		return n, fmt.Errorf("encode notice: %w", err)
	}
	n.Body = string(body)
	return n, nil
}

// named puts a subject into a text. Subjects are names of ours: agents, channels, kinds of jobs, hosts.
func named(text, subject string) string {
	return strings.ReplaceAll(text, "%s", Excerpt(subject, MaxNote))
}

// began is the notice that something lasts, or that many events come in a burst.
func (s *Service) began(c exchange.NoticeCondition, settings Settings, count int64, now time.Time) (exchange.Notice, error) {
	w := wordsOf[c.Kind]
	lines := []string{"Since " + c.Since.In(settings.Zone).Format(timeLayout) + "."}
	if count > 0 {
		lines[0] = fmt.Sprintf("%d since %s. Further ones are counted; you hear of them when it is over.", count, c.Since.In(settings.Zone).Format(timeLayout))
	}
	if c.Reason != "" {
		lines = append(lines, "", "| "+Excerpt(c.Reason, maxReason))
	}
	lines = append(lines, "", "Look: "+named(w.look, c.Subject))
	n := exchange.Notice{
		ID: newID(), Kind: c.Kind, Subject: c.Subject, Phase: exchange.NoticeBegan, CreatedAt: now,
		Title: s.titled(named(w.began, c.Subject)), Text: strings.Join(lines, "\n"),
	}
	return finished(n, document{Domain: s.options.Domain, Count: count, Since: c.Since})
}

// ended is the notice that it is over.
func (s *Service) ended(c exchange.NoticeCondition, settings Settings, count int64, now time.Time) (exchange.Notice, error) {
	w := wordsOf[c.Kind]
	text := fmt.Sprintf("From %s to %s.", c.Since.In(settings.Zone).Format(timeLayout), c.EndedAt.In(settings.Zone).Format(timeLayout))
	if count > 0 {
		text = fmt.Sprintf("%d in all, from %s to %s.\n\nLook: %s", count, c.Since.In(settings.Zone).Format(timeLayout),
			c.EndedAt.In(settings.Zone).Format(timeLayout), named(w.look, c.Subject))
	}
	n := exchange.Notice{
		ID: newID(), Kind: c.Kind, Subject: c.Subject, Phase: exchange.NoticeEnded, CreatedAt: now, Title: s.titled(named(w.ended, c.Subject)), Text: text,
	}
	return finished(n, document{Domain: s.options.Domain, Count: count, Since: c.Since})
}

// digest is the notice of what was counted since the last one.
func (s *Service) digest(tallies []exchange.NoticeTally, open []exchange.NoticeCondition, settings Settings, since, now time.Time) (exchange.Notice, error) {
	var title, text []string
	text = append(text, "From "+since.In(settings.Zone).Format(timeLayout)+" to "+now.In(settings.Zone).Format(timeLayout)+".")
	for _, kind := range exchange.NoticeKinds() {
		var ofKind []exchange.NoticeTally
		sum := int64(0)
		for _, tally := range tallies {
			if tally.Kind == kind {
				ofKind, sum = append(ofKind, tally), sum+tally.Count
			}
		}
		if sum == 0 {
			continue
		}
		title = append(title, counted(kind, sum))
		text = append(text, append([]string{"", counted(kind, sum) + ":"}, digestLines(kind, ofKind, settings)...)...)
	}

	if len(open) > 0 {
		text = append(text, "", "Lasts:")
		for _, c := range open {
			text = append(text, "  "+named(wordsOf[c.Kind].began, c.Subject)+", since "+c.Since.In(settings.Zone).Format(timeLayout))
		}
	}

	heading := "digest"
	if len(title) > 0 {
		heading = strings.Join(title[:min(len(title), 3)], ", ")
		if len(title) > 3 {
			heading += ", …"
		}
	}
	n := exchange.Notice{ID: newID(), Phase: exchange.NoticeDigest, CreatedAt: now, Title: s.titled(heading), Text: strings.Join(text, "\n")}
	return finished(n, document{Domain: s.options.Domain, Since: since, Counts: tallies})
}

func counted(kind string, count int64) string {
	if count == 1 {
		return "1 " + wordsOf[kind].one
	}
	return fmt.Sprintf("%d %s", count, wordsOf[kind].many)
}

// digestLines are the subjects of one kind, those with most first, with their newest events.
func digestLines(kind string, tallies []exchange.NoticeTally, settings Settings) (lines []string) {
	slices.SortStableFunc(tallies, func(a, b exchange.NoticeTally) int { return int(b.Count - a.Count) })
	w := wordsOf[kind]
	looks := map[string]bool{}
	for i, tally := range tallies {
		if i == maxLines {
			lines = append(lines, fmt.Sprintf("  and %d more", len(tallies)-maxLines))
			break
		}
		lines = append(lines, fmt.Sprintf("  %s: %d", Excerpt(tally.Subject, MaxNote), tally.Count))
		for _, one := range tally.Examples {
			line := "    " + one.At.In(settings.Zone).Format(timeLayout)
			if w.show != "" && one.ID != "" {
				line += "  " + named(w.show, one.ID)
			}
			if one.Note != "" {
				line += "  | " + Excerpt(one.Note, MaxNote)
			}
			lines = append(lines, line)
		}
		if look := named(w.look, tally.Subject); !looks[look] && len(looks) < 3 {
			looks[look] = true
			lines = append(lines, "  Look: "+look)
		}
	}
	return lines
}

// test is the notice of a trial.
func (s *Service) test(now time.Time) (exchange.Notice, error) {
	n := exchange.Notice{
		ID: newID(), Phase: exchange.NoticeTest, CreatedAt: now, Title: s.titled("a test"),
		Text: "This is a test: what this server has to tell its operator reaches this address.",
	}
	return finished(n, document{Domain: s.options.Domain})
}

func (s *Service) titled(text string) string { return "inbox " + s.options.Domain + ": " + text }
