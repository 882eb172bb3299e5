package message

import (
	"errors"
	"fmt"
	"net"
	"net/mail"
	"strings"

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
	maxDisplayName = 128 // runes
	maxListed      = 200 // addresses read from one To or Cc
)

var (
	errFromCount  = errors.New("a mail needs exactly one From field")
	errFromOne    = errors.New("From must hold exactly one address and no group")
	errFromSyntax = errors.New("the From field cannot be read as an address")
)

// ParseFrom applies the rules for the one field that can be an identity: one field, one mailbox, no group, no
// route, no literal, no disguise (reference: RFC 5322 section 3.6.2; RFC 9989 section 5.3.1).
func ParseFrom(fields Header) (Mailbox, error) {
	found := fields.All("From")
	if len(found) != 1 || found[0].Name != strings.TrimRight(found[0].Name, " \t") {
		return Mailbox{}, errFromCount
	}

	value := found[0].Text()
	if len(value) > 4096 || outsideQuotes(value, ":;") {
		return Mailbox{}, errFromOne
	}

	parser := mail.AddressParser{WordDecoder: wordDecoder}
	list, err := parser.ParseList(value)
	if err != nil {
		return Mailbox{}, fmt.Errorf("%w: %w", errFromSyntax, err)
	}

	if len(list) != 1 {
		return Mailbox{}, errFromOne
	}

	return toMailbox(list[0])
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
// ports, and punycodes the domain.
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

	if len(parsed.Local) > most || strings.HasPrefix(parsed.Local, ".") || strings.HasSuffix(parsed.Local, ".") || strings.Contains(parsed.Local, "..") {
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

// Addresses reads To, Cc or Reply-To of all instances. What cannot be read is left out: these fields decide who
// else is in the conversation, never who speaks.
func (h Header) Addresses(name string) []Mailbox {
	var boxes []Mailbox
	parser := mail.AddressParser{WordDecoder: wordDecoder}
	for _, f := range h.All(name) {
		value := f.Text()
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

// AddressKey returns an address in lower case; empty when it is none.
func AddressKey(text string) string {
	box, err := ParseMailbox(strings.Trim(strings.TrimSpace(text), "<>"))
	if err != nil {
		return ""
	}
	return box.Key()
}
