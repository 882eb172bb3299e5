package identity

import "strings"

// ProvenAddress is an address for which accepted evidence vouches, in canonical form; empty = none. Evidence.Proven makes it.
type ProvenAddress string

// Mail returns user@domain.
func (a ProvenAddress) Mail() string { return strings.TrimPrefix(string(a), "@") }

// StatedAddress is an address that a sender gave for themselves. Anyone can state any address, so it is shown and listed, and
// it selects nothing: values cannot be compared with each other or with a ProvenAddress, and cannot be keys of a map.
type StatedAddress struct {
	_    [0]func()
	text string
}

// Stated returns the address that a sender states.
func Stated(address string) StatedAddress { return StatedAddress{text: address} }

// String returns the address for display.
func (a StatedAddress) String() string { return a.text }

// MarshalText writes the address.
func (a StatedAddress) MarshalText() ([]byte, error) { return []byte(a.text), nil }

// Resembles reports whether the sender states the address, in whatever letter case. It is for lists that warn of such senders.
func (a StatedAddress) Resembles(address ProvenAddress) bool {
	stated, err := ParseAddress(a.text)
	return err == nil && strings.EqualFold(stated.String(), string(address))
}
