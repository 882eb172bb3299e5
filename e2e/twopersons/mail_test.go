package twopersons

import (
	"bytes"
	"fmt"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"time"

	"inbox/adapters/email/message"
	"inbox/e2e/load"
)

// domain gives a mail domain to a person. It asks receivers to refuse nothing, so that they also see what proves nothing.
func (w *world) domain(name string) load.MailDomain {
	part := strings.TrimRight(name, "0123456789")
	made, known := w.keys[part]
	if !known {
		key, err := load.NewKey()
		if err != nil {
			w.Fatal(err)
		}
		made = load.MailDomain{Selector: "s1", Key: key}
		w.keys[part] = made
	}
	made.Name = name + ".test"
	w.names.SetTXT(made.Record())
	w.names.SetTXT(made.Name, "v=spf1 -all")
	w.names.SetTXT("_dmarc."+made.Name, "v=DMARC1; p=none")
	return made
}

// header is what the author of a mail writes into it, besides the text.
type header struct {
	from, to, cc, replyTo, subject string
	id, parent                     string
	references                     []string
	name                           string // in front of from
}

// write makes an unsigned mail.
func (h header) write(text string) []byte {
	var out bytes.Buffer
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&out, "%s: %s\r\n", name, value)
		}
	}
	field("From", fmt.Sprintf("%q <%s>", h.name, h.from))
	field("To", h.to)
	field("Cc", h.cc)
	field("Reply-To", h.replyTo)
	field("Subject", h.subject)
	field("Date", time.Now().Format(time.RFC1123Z))
	field("Message-ID", angled(h.id))
	field("In-Reply-To", angled(h.parent))
	field("References", angled(h.references...))
	field("MIME-Version", "1.0")
	field("Content-Type", "text/plain; charset=utf-8")
	out.WriteString("\r\n" + strings.ReplaceAll(text, "\n", "\r\n") + "\r\n")
	return out.Bytes()
}

// angled writes ids of any network as Message-IDs; what cannot be one is left out.
func angled(ids ...string) string {
	var list []string
	for _, id := range ids {
		if message.ValidID(id) {
			list = append(list, "<"+id+">")
		}
	}
	return strings.Join(list, " ")
}

// sign signs a mail of a person.
func (w *world) sign(by *person, unsigned []byte) []byte {
	w.Helper()
	signed, err := by.post.Sign(unsigned)
	if err != nil {
		w.Fatal(err)
	}
	return signed
}

// deliver brings a mail to an address of the server and returns what it said against it.
func (w *world) deliver(from, to string, raw []byte) error {
	w.Helper()
	sender, err := load.DialMail(w.MailAddr())
	if err != nil {
		w.Fatal(err)
	}
	defer sender.Close()
	return sender.Send(from, to, raw)
}

// mailArrived takes what the server sends: each recipient of the envelope reads it.
func (w *world) mailArrived(arrived load.Received) {
	text := plainMail(arrived.Raw)
	for _, to := range arrived.To {
		reader := w.ledger.owner(to)
		if reader == nil {
			continue
		}
		w.ledger.reads(reader, "a mail to "+reader.String(), text)

		w.mu.Lock()
		id := arrived.Field("Message-Id")
		reader.mails = append(reader.mails, letter{nil, id, arrived.Raw})
		reader.returns = append(reader.returns, arrived.From)
		reader.links = append(reader.links, linkPattern.FindAllString(text, -1)...)
		if reader == w.boss {
			if code := submatch(codePattern, text); code != "" && arrived.Header.Get("In-Reply-To") == "" {
				w.asked = append(w.asked, asked{id: id, text: text, code: code})
			}
		} else {
			w.wire = noted(w.wire, append(message.IDs(arrived.Header.Get("References")), id))
			if tag, err := mail.ParseAddress(arrived.Header.Get("Reply-To")); err == nil {
				w.wire = noted(w.wire, []string{tag.Address})
			}
		}
		w.mu.Unlock()
	}
}

// isTag reports whether an address is that of one conversation with an agent.
func isTag(address string) bool {
	return strings.HasSuffix(address, "@"+mailDomain) && strings.Contains(address, "+t.")
}

var codePattern = regexp.MustCompile(`approve ([0-9][0-9a-z]{5})`)

func submatch(pattern *regexp.Regexp, text string) string {
	if found := pattern.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// plainMail is a mail without the soft line breaks and the encoding that would cut words and links.
func plainMail(raw []byte) string {
	text := strings.NewReplacer("=\r\n", "", "=3D", "=").Replace(string(raw))
	return strings.ReplaceAll(text, "\r\n", "\n")
}

// quoted is a mail as replies repeat it.
func quoted(text string) string {
	lines := strings.Split(text, "\n")
	return "> " + strings.Join(lines[:min(len(lines), 60)], "\n> ")
}

// sendMail writes to an agent by mail.
func (r *run) sendMail(m note) {
	head := header{
		from: m.author.mail, to: m.agent + "@" + mailDomain, subject: "About " + m.word.text, id: m.id, parent: m.parent, references: m.references, name: m.name,
	}
	if m.subject != "" {
		head.subject = m.subject
	}
	if m.tag != "" {
		head.to = m.tag
	}
	for _, reader := range m.cc {
		head.cc = strings.TrimPrefix(head.cc+", "+reader.mail, ", ")
	}
	if m.replyTo != nil {
		head.replyTo = m.replyTo.mail
	}

	signed := !m.forged
	if m.forged {
		head.from = r.people.other(m.author).mail
	}
	raw := head.write(m.text)
	if signed {
		raw = r.sign(m.author, raw)
	}
	for _, reader := range append(slices.Clone(m.cc), m.author) {
		reader.mails = append(reader.mails, letter{m.author, m.id, raw})
	}
	r.took(r.deliver(m.author.mail, head.to, raw))
}
