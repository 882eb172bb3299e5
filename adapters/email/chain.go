package email

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// chainField counts the hops of agents that write to agents: "hop=2; max=4". Anybody can write it, so it is believed
// only where it makes us stricter.
const chainField = "X-Mentionable-Agent-Chain"

// codeChain is the code of a chain that may not go on (message contract, section 7).
const codeChain = "chain:exhausted"

// defaultMaxHops is the ceiling of a chain that begins with us, where the agent has none of its own.
const defaultMaxHops = 4

var errChain = errors.New("want hop=<number>; max=<number> with hop from 1 to max")

// readChain reads the hint of a mail; nil without an error means that there is none.
func readChain(fields message.Header) (*normalized.AgentChain, error) {
	found := fields.All(chainField)
	if len(found) == 0 {
		return nil, nil
	}
	if len(found) > 1 {
		return nil, errChain
	}
	first, second, _ := strings.Cut(found[0].Text(), ";")
	hop, hopFound := chainNumber(first, "hop=")
	most, mostFound := chainNumber(strings.TrimPrefix(second, " "), "max=")
	if !hopFound || !mostFound || hop > most {
		return nil, errChain
	}
	return &normalized.AgentChain{Hop: hop, MaxHops: most, IsFinal: hop == most}, nil
}

// chainNumber reads a number from 1 to 999 in its only spelling.
func chainNumber(text, name string) (int, bool) {
	digits, named := strings.CutPrefix(text, name)
	number, err := strconv.Atoi(digits)
	return number, named && err == nil && number >= 1 && number <= 999 && strconv.Itoa(number) == digits
}

// refuseChain makes the message one that is never answered. It is not refused on the wire: the bounce would be one
// more mail between programs.
func refuseChain(in *exchange.Inbound, fields message.Header, reason error) {
	written := message.Clip(fields.Get(chainField), 100)
	in.NoReply = codeChain + ": " + chainField + " is " + strconv.Quote(written)
	in.Rejected = append(in.Rejected, identity.Rejection{
		Code: codeChain, Reason: fmt.Sprintf("%s is %q: %s", chainField, written, reason), Subject: in.Message.Sender.Address,
	})
}

// chainOf gives the chain that a reply carries: one hop more than its question, and a new chain when the agent brings
// others into the conversation, of whom nobody knows which are agents.
func (a *Adapter) chainOf(reply exchange.Reply, people audience) (normalized.AgentChain, bool) {
	if asked := reply.Message.RecipientCapabilities.AgentChain; asked != nil {
		return normalized.AgentChain{Hop: asked.Hop + 1, MaxHops: asked.MaxHops}, true
	}
	return normalized.AgentChain{Hop: 1, MaxHops: a.options.MaxHops(reply.Agent)}, len(people.all()) > 1
}

func formatChain(chain normalized.AgentChain) string {
	return fmt.Sprintf("hop=%d; max=%d", chain.Hop, chain.MaxHops)
}
