// Package blame charges failures to their causes. One message can make a program or a server fail, and no one else may pay for
// that: what many share is considered down only if no single cause explains its failures.
package blame

import "cmp"

// MaxKept bounds the causes, and the senders, that a Tally remembers.
const MaxKept = 10_000

// Cause is who may have caused a failure.
type Cause struct {
	// Sender is who brought the message, as the server knows them.
	Sender string
	// Account is what proves the sender: the registrable domain of the proof, or the account that the operator gave them. It is empty
	// for a sender without proof.
	Account string
	// Network and Domain are where a sender without proof comes from and what they call their own. Either costs a stranger nothing to
	// vary, so both must differ from those of other failures to count as another cause.
	Network, Domain string
}

// Wide returns the part of the cause that is hard to vary: the account with proof, else the network.
func (c Cause) Wide() string {
	switch {
	case c.Account != "":
		return "account " + c.Account
	case c.Network != "":
		return "network " + c.Network
	}
	return "domain " + c.Domain
}

// Tally counts the causes of failures in a row. The zero value is empty. It is not safe for concurrent use.
type Tally struct {
	accounts, networks, domains, senders map[string]int
	unproven                             int // failures of senders without proof
}

// Add counts a failure.
func (t *Tally) Add(c Cause) {
	note(&t.senders, c.Sender)
	if c.Account != "" {
		note(&t.accounts, c.Account)
		return
	}
	t.unproven++
	note(&t.networks, c.Network)
	note(&t.domains, c.Domain)
}

func note(counts *map[string]int, key string) {
	if *counts == nil {
		*counts = map[string]int{}
	}
	if _, known := (*counts)[key]; known || len(*counts) < MaxKept {
		(*counts)[key]++
	}
}

// Share says how much a cause has to do with the failures: who has less to do with them is asked first. All senders without proof are one
// at first, as there can be any number of them, and then each of their networks.
type Share struct{ All, Own int }

// Compare returns -1 for a smaller share.
func (s Share) Compare(other Share) int {
	return cmp.Or(cmp.Compare(s.All, other.All), cmp.Compare(s.Own, other.Own))
}

// ShareOf returns the share of a cause.
func (t *Tally) ShareOf(c Cause) Share {
	if c.Account != "" {
		return Share{t.accounts[c.Account], t.senders[c.Sender]}
	}
	return Share{t.unproven, t.networks[c.Network]}
}

// Causes returns how many independent causes the failures have at least.
func (t *Tally) Causes() int { return len(t.accounts) + min(len(t.networks), len(t.domains)) }

// Includes reports whether a failure of the sender was counted. A full tally includes everyone.
func (t *Tally) Includes(sender string) bool {
	return t.senders[sender] > 0 || len(t.senders) >= MaxKept
}
