package message

import (
	"errors"
	"fmt"
	"net"
	"net/mail"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"inbox/identity"
)

// Mailbox is one address of a mail. Domain is lower-case punycode, Local is kept as sent.
type Mailbox struct {
	Name   string `json:"name,omitempty"` // display name, cleaned; never an identity
	Local  string `json:"local"`
	Domain string `json:"domain"`
}

// Address returns local@domain.
func (m Mailbox) Address() string { return m.Local + "@" + m.Domain }

// Key compares addresses: both sides without case, and letters with marks in one form, as RFC 6532, section 3.1, asks for.
func (m Mailbox) Key() string { return norm.NFC.String(strings.ToLower(m.Address())) }

// Canonical returns the form of the message contract, @local@domain.
func (m Mailbox) Canonical() string { return "@" + m.Address() }

const (
	maxDisplayName = 128  // runes
	maxListed      = 1000 // addresses read from all instances of To or Cc
)

var (
	errFromCount    = errors.New("a mail needs exactly one From field")
	errFromOne      = errors.New("From must hold exactly one address and no group")
	errFromSyntax   = errors.New("the From field cannot be read as an address")
	errFromReadings = errors.New("the From field can be read as more than one address, or as none")
)

// ParseFrom applies the rules for the one field that can be an identity: one field, one mailbox, no group, no
// route, no literal, no disguise (reference: RFC 5322 section 3.6.2; RFC 9989 section 5.3.1).
func ParseFrom(fields Header) (Mailbox, error) {
	found := fields.All("From")
	if len(found) != 1 || found[0].Name != strings.TrimRight(found[0].Name, " \t") {
		return Mailbox{}, errFromCount
	}

	value := found[0].Text()
	if len(value) > maxWord {
		return Mailbox{}, errFromOne
	}

	parser := mail.AddressParser{WordDecoder: wordDecoder}
	list, err := parser.ParseList(value)
	switch {
	case err != nil:
		return readOddFrom(value)
	case outsideQuotes(value, ":;"): // a group
		return Mailbox{}, errFromOne
	}

	box, err := toMailbox(list[0])
	if err != nil {
		return Mailbox{}, err
	}
	for _, other := range list[1:] {
		if again, err := toMailbox(other); err != nil || again.Key() != box.Key() {
			return Mailbox{}, errFromOne
		}
	}
	return box, nil
}

// readOddFrom reads a From field that does not keep the grammar, if no program can read another mailbox from it: it decides who speaks.
func readOddFrom(value string) (Mailbox, error) {
	only, ok := everyReading(value)
	decoded, same := everyReading(DecodeWords(value))
	switch {
	case strings.ContainsFunc(value, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }):
		return Mailbox{}, errFromSyntax
	case !ok || !same || only.Key() != decoded.Key():
		return Mailbox{}, errFromReadings
	}

	for _, box := range readOddList(value, maxListed, false) {
		if box.Key() == only.Key() {
			return box, nil
		}
	}
	return Mailbox{}, errFromSyntax
}

// outsideQuotes reports whether one of the characters stands outside quoted strings and comments.
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

func toMailbox(address *mail.Address) (Mailbox, error) {
	box, err := ParseMailbox(address.Address)
	if err != nil {
		return Mailbox{}, err
	}
	box.Name = DisplayName(address.Name)
	return box, nil
}

// ParseMailbox reads local@domain strictly: it cuts at the last @, refuses quoted local parts, routes, literals and
// ports, and punycodes the domain. Dots may stand anywhere in the local part: providers have given out such addresses.
func ParseMailbox(text string) (Mailbox, error) { return ParseMailboxUpTo(text, 64) }

// ParseMailboxUpTo is parseMailbox with another limit of the local part.
func ParseMailboxUpTo(text string, most int) (Mailbox, error) {
	parsed, err := identity.ParseAddress(text)
	if err != nil {
		return Mailbox{}, err
	}

	at := strings.LastIndexByte(text, '@')
	host := text[at+1:]
	if strings.ContainsAny(host, ":[]") || net.ParseIP(strings.TrimSuffix(host, ".")) != nil || parsed.Local != text[:at] {
		return Mailbox{}, fmt.Errorf("%w: %q", identity.ErrAddress, text)
	}

	if len(parsed.Local) > most {
		return Mailbox{}, fmt.Errorf("%w: local part of %q", identity.ErrAddress, text)
	}

	return Mailbox{Local: parsed.Local, Domain: parsed.Domain}, nil
}

// DisplayName cleans a display name; one that looks like an address is dropped, because it lies more often than not.
func DisplayName(name string) string {
	name = Clean(name, maxDisplayName)
	if strings.ContainsAny(name, "@\uff20\ufe6b") {
		return ""
	}
	return name
}

// Addresses reads To, Cc or Reply-To of all instances, at most 1000 addresses. What cannot be read is left out: these fields decide who
// else is in the conversation, never who speaks.
func (h Header) Addresses(name string) []Mailbox {
	var boxes []Mailbox
	for _, f := range h.All(name) {
		boxes = append(boxes, readList(f.Text(), maxListed-len(boxes))...)
	}
	return boxes
}

// AddressKey returns an address in lower case; empty when it is none.
func AddressKey(text string) string {
	text = strings.Trim(strings.TrimSpace(text), "<>")
	if at := strings.LastIndexByte(text, '@'); at > 0 {
		text = unquotedLocal(text[:at]) + text[at:]
	}
	box, err := ParseMailbox(text)
	if err != nil {
		return ""
	}
	return box.Key()
}

// WirePath returns an address as commands of SMTP write it: with quotes around a local part that has dots where RFC 5321, section 4.1.2, has
// none.
func WirePath(address string) string {
	local, domain, _ := strings.Cut(address, "@")
	if strings.HasPrefix(local, ".") || strings.HasSuffix(local, ".") || strings.Contains(local, "..") {
		return `"` + local + `"@` + domain
	}
	return address
}
