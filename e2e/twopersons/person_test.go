package twopersons

import (
	"crypto/ed25519"
	"strings"

	"inbox/e2e/load"
)

// person takes part under proven addresses, one on each channel.
type person struct {
	name  string
	mail  string // user@domain of their own
	post  load.MailDomain
	home  *home       // server of the fediverse
	actor load.Person // there
	proof ed25519.PrivateKey
	token string // of A2A and of the chat
	badge string // under which a messenger knows them
	claim string // what their account calls itself: user@host, which is somebody else's; empty = its name

	// What reached them, and what others can see of it: ids travel in plain sight, the rest is theirs until they pass it on.
	mails   []letter
	returns []string // Return-Path of mails to them
	links   []string // of demands
}

func (p *person) String() string {
	if p == nil {
		return "an agent or the operator"
	}
	return strings.TrimRight(p.name, "0123456789")
}

// handle is the person's address in the fediverse: user@host.
func (p *person) handle() string { return p.actor.Name + "@" + p.home.host() }

// letter is a signed mail as it went over the wire.
type letter struct {
	author *person
	id     string
	raw    []byte
}

// people are those of one run. Boss, who decides about approvals, belongs to the world, because an approver is a setting.
type people struct{ ann, eve *person }

func (p people) other(one *person) *person {
	if one == p.ann {
		return p.eve
	}
	return p.ann
}
