package identity

import "strings"

// ProvenAddress is an address for which accepted evidence vouches, in canonical form; empty = none. Evidence.Proven makes it.
type ProvenAddress string

// Mail returns user@domain.
func (a ProvenAddress) Mail() string { return strings.TrimPrefix(string(a), "@") }

// StatedAddress is an address that a sender gave for themselves. Anyone can state any address, so it is shown and listed, and
// it selects nothing: values cannot be compared with each other or with a ProvenAddress, and cannot be keys of a map. To decide
// something, ask the evidence (Evidence.Proven, Evidence.Vouches). An architecture test lists who calls String, Parse and Names.
type StatedAddress struct {
	_    [0]func()
	text string
}

// Stated returns the address that a sender states.
func Stated(address string) StatedAddress { return StatedAddress{text: address} }

// String returns the address for display.
func (a StatedAddress) String() string { return a.text }

// IsZero reports whether no address is stated.
func (a StatedAddress) IsZero() bool { return a.text == "" }

// MarshalText writes the address.
func (a StatedAddress) MarshalText() ([]byte, error) { return []byte(a.text), nil }

// UnmarshalText reads an address as it was stated.
func (a *StatedAddress) UnmarshalText(text []byte) error {
	a.text = string(text)
	return nil
}

// Parse reads the address, to refuse what claims it. It must not admit or join anyone.
func (a StatedAddress) Parse() (Address, error) { return ParseAddress(a.text) }

// Names reports whether the sender states the address that is written in text, so that it can be left out of what is sent to
// others. Local parts are compared as those of agents are.
func (a StatedAddress) Names(text string) bool {
	stated, err := ParseAddress(a.text)
	other, errOther := ParseAddress(text)
	return err == nil && errOther == nil && CanonicalAgent(stated) == CanonicalAgent(other)
}

// Resembles reports whether the sender states the address, in whatever letter case. It is for lists that warn of such senders.
func (a StatedAddress) Resembles(address ProvenAddress) bool {
	stated, err := ParseAddress(a.text)
	return err == nil && strings.EqualFold(stated.String(), string(address))
}

// LooksLike reports whether both are shown with the same text, so that a reader has to be told them apart.
func (a StatedAddress) LooksLike(other StatedAddress) bool { return a.text == other.text }
