package email

import (
	"errors"
	"fmt"
	"net"
	"net/mail"
	"strings"

	"golang.org/x/text/unicode/norm"

	"inbox/identity"
)

// mailbox is one address of a mail. Domain is lower-case punycode, Local is kept as sent.
type mailbox struct {
	Name   string `json:"name,omitempty"` // display name, cleaned; never an identity
	Local  string `json:"local"`
	Domain string `json:"domain"`
}

func (m mailbox) address() string { return m.Local + "@" + m.Domain }

// key compares addresses: both sides without case, and letters with marks in one form, as RFC 6532, section 3.1, asks for.
func (m mailbox) key() string { return norm.NFC.String(strings.ToLower(m.address())) }

func (m mailbox) canonical() string { return "@" + m.address() }

const (
	maxDisplayName = 128 // runes
	maxListed      = 200 // addresses read from one To or Cc
	maxTag         = 64
)

var (
	errFromCount  = errors.New("a mail needs exactly one From field")
	errFromOne    = errors.New("From must hold exactly one address and no group")
	errFromSyntax = errors.New("the From field cannot be read as an address")
)

// parseFrom applies the rules for the one field that can be an identity: one field, one mailbox, no group, no
// route, no literal, no disguise (reference: RFC 5322 section 3.6.2; RFC 9989 section 5.3.1).
func parseFrom(fields header) (mailbox, error) {
	found := fields.all("From")
	if len(found) != 1 || found[0].name != strings.TrimRight(found[0].name, " \t") {
		return mailbox{}, errFromCount
	}
	value := found[0].text()
	if len(value) > 4096 || outsideQuotes(value, ":;") {
		return mailbox{}, errFromOne
	}
	parser := mail.AddressParser{WordDecoder: wordDecoder}
	list, err := parser.ParseList(value)
	if err != nil {
		return mailbox{}, fmt.Errorf("%w: %w", errFromSyntax, err)
	}
	if len(list) != 1 {
		return mailbox{}, errFromOne
	}
	return toMailbox(list[0])
}

// outsideQuotes says whether one of the characters stands outside quoted strings and comments.
func outsideQuotes(text, characters string) bool {
	quoted, comment := false, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '"' && comment == 0:
			quoted = !quoted
		case quoted:
		case c == '(':
			comment++
		case c == ')' && comment > 0:
			comment--
		case comment == 0 && strings.IndexByte(characters, c) >= 0:
			return true
		}
	}
	return false
}

func toMailbox(address *mail.Address) (mailbox, error) {
	box, err := parseMailbox(address.Address)
	if err != nil {
		return mailbox{}, err
	}
	box.Name = displayName(address.Name)
	return box, nil
}

// parseMailbox reads local@domain strictly: it cuts at the last @, refuses quoted local parts, routes, literals and
// ports, and punycodes the domain.
func parseMailbox(text string) (mailbox, error) { return parseMailboxUpTo(text, 64) }

// parseMailboxUpTo is parseMailbox with another limit of the local part.
func parseMailboxUpTo(text string, most int) (mailbox, error) {
	parsed, err := identity.ParseAddress(text)
	if err != nil {
		return mailbox{}, err
	}
	at := strings.LastIndexByte(text, '@')
	host := text[at+1:]
	if strings.ContainsAny(host, ":[]") || net.ParseIP(strings.TrimSuffix(host, ".")) != nil || parsed.Local != text[:at] {
		return mailbox{}, fmt.Errorf("%w: %q", identity.ErrAddress, text)
	}
	if len(parsed.Local) > most || strings.HasPrefix(parsed.Local, ".") || strings.HasSuffix(parsed.Local, ".") || strings.Contains(parsed.Local, "..") {
		return mailbox{}, fmt.Errorf("%w: local part of %q", identity.ErrAddress, text)
	}
	return mailbox{Local: parsed.Local, Domain: parsed.Domain}, nil
}

// displayName cleans a display name; one that looks like an address is dropped, because it lies more often than not.
func displayName(name string) string {
	name = cleanText(name, maxDisplayName)
	if strings.ContainsAny(name, "@\uff20\ufe6b") {
		return ""
	}
	return name
}

// addressList reads To, Cc or Reply-To of all instances. What cannot be read is left out: these fields decide who
// else is in the conversation, never who speaks.
func (h header) addressList(name string) []mailbox {
	var boxes []mailbox
	parser := mail.AddressParser{WordDecoder: wordDecoder}
	for _, f := range h.all(name) {
		value := f.text()
		if len(value) > 64<<10 {
			continue
		}
		list, err := parser.ParseList(value)
		if err != nil {
			continue
		}
		for _, address := range list {
			if box, err := toMailbox(address); err == nil && len(boxes) < maxListed {
				boxes = append(boxes, box)
			}
		}
	}
	return boxes
}

// splitTag cuts agent+tag at the first plus sign. A tag that is too long or odd is dropped: nothing routes by it.
func splitTag(local string) (name, tag string) {
	name, tag, _ = strings.Cut(local, "+")
	if len(tag) > maxTag || !plainTag(tag) {
		tag = ""
	}
	return strings.ToLower(name), tag
}

func plainTag(tag string) bool {
	for i := range len(tag) {
		c := tag[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.=+", c) >= 0:
		default:
			return false
		}
	}
	return !strings.HasPrefix(tag, ".") && !strings.HasSuffix(tag, ".") && !strings.Contains(tag, "..")
}

func tagged(local, tag string) string {
	if tag == "" {
		return local
	}
	return local + "+" + tag
}
