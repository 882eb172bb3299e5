package exchange

import (
	"slices"
	"strings"
	"time"

	"inbox/identity"
)

// ArrivalFilter selects messages in the order in which they came, newest first. Empty fields do not restrict; all that are set
// hold together.
type ArrivalFilter struct {
	Agent   string    // its name
	Sender  string    // an address, all of a domain (@example.org), or a principal; see SenderFilter
	Channel string    // Module.Name
	States  []string  // one of them
	Since   time.Time // accepted at the instant or later, to a millisecond
	Until   time.Time // accepted before it
	// Text is what the message or its answer says: words that all occur, "phrases", beginnings*. The sender's address, its
	// display name and the subject count too.
	Text string

	Before string // ArrivalPage.Next of the page before
	Limit  int    // 1…500
}

// ArrivalPage is a page of messages. It may have fewer than its limit, or none, although more follow: Next alone says so.
type ArrivalPage struct {
	Turns []TurnRecord
	Next  string // empty = this is the last page
}

// What ArrivalFilter.Sender names.
const (
	SenderAnyone    = ""
	SenderAddress   = "address"
	SenderDomain    = "domain"
	SenderPrincipal = "principal"
)

// SenderFilter reads who is meant: what has a blank is a principal (normalized.Sender.Principal), what has an @ at its beginning
// alone is a domain, and everything else an address, in whatever form.
func SenderFilter(text string) (kind, value string) {
	switch {
	case text == "":
		return SenderAnyone, ""
	case strings.ContainsRune(text, ' '):
		return SenderPrincipal, text
	case text[0] == '@' && strings.LastIndexByte(text, '@') == 0:
		return SenderDomain, strings.ToLower(text[1:])
	}

	if address, err := identity.ParseAddress(text); err == nil {
		text = address.String()
	}
	return SenderAddress, strings.ToLower(text)
}

// Selects reports whether the filter selects a message by who sent it, where it went and what became of it: Text, Before and times
// are not looked at.
func (f ArrivalFilter) Selects(turn *TurnRecord) bool {
	switch kind, value := SenderFilter(f.Sender); kind {
	case SenderPrincipal:
		if turn.Principal != value {
			return false
		}
	case SenderAddress:
		if strings.ToLower(turn.Message.Sender.Address.String()) != value {
			return false
		}
	case SenderDomain:
		address := strings.ToLower(turn.Message.Sender.Address.String())
		if at := strings.LastIndexByte(address, '@'); at < 1 || address[at+1:] != value {
			return false
		}
	}

	return (f.Agent == "" || turn.Agent == f.Agent) && (f.Channel == "" || turn.Channel == f.Channel) &&
		(len(f.States) == 0 || slices.Contains(f.States, turn.State))
}
