// Package blame charges failures to their causes. One message can make a program or a server fail, and nobody else may pay for
// that: what many share is considered down only if no single cause explains its failures.
package blame

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

// Wide names the cause by what is hard to multiply: the account of the proof, else the network.
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
	accounts, networks, domains, senders map[string]bool
}

// Add counts a failure.
func (t *Tally) Add(c Cause) {
	note(&t.senders, c.Sender)
	if c.Account != "" {
		note(&t.accounts, c.Account)
		return
	}
	note(&t.networks, c.Network)
	note(&t.domains, c.Domain)
}

func note(set *map[string]bool, key string) {
	if *set == nil {
		*set = map[string]bool{}
	}
	if len(*set) < MaxKept {
		(*set)[key] = true
	}
}

// Causes returns how many independent causes the failures have at least.
func (t *Tally) Causes() int { return len(t.accounts) + min(len(t.networks), len(t.domains)) }

// Includes reports whether a failure of the sender was counted. A full tally includes everyone.
func (t *Tally) Includes(sender string) bool { return t.senders[sender] || len(t.senders) >= MaxKept }
