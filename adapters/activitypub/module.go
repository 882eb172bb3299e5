package activitypub

import (
	"context"
	"encoding/json"
	"strings"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/redact"
	"inbox/normalized"
)

// ChannelName is the name of the channel.
const ChannelName = "activitypub"

// Module returns the channel as a node runs it.
func (a *Adapter) Module() exchange.Module {
	return exchange.Module{
		Name: ChannelName, ReceivedVia: normalized.ViaActivityPub, Channel: a, Policy: a.options.Policy,
		Routes: a.Routes(), Opener: opener{a}, Links: a.Links,
		Keys: []redact.Key{{Path: "/media/", Query: "key"}},
	}
}

// opener begins conversations with accounts, whose addresses have the form @user@domain.
type opener struct{ *Adapter }

func (opener) Reaches(address string) bool { return strings.HasPrefix(address, "@") }

// Open needs no subject: a note has none.
func (o opener) Open(ctx context.Context, agent, address, _ string) (json.RawMessage, error) {
	return o.Adapter.Open(ctx, agent, address)
}

// Parties returns the principal of the account that an opened note is for.
func (o opener) Parties(opened json.RawMessage) []string {
	asked, err := readRoute(opened)
	if err != nil || asked.Actor == "" {
		return nil
	}
	return []string{o.principalOf(asked.Actor)}
}

// Proves takes an actor for an address only when WebFinger of that address names it: on its own word it could be any account of its
// host.
func (o opener) Proves(ctx context.Context, evidence *identity.Evidence, address string) (proven, known bool, err error) {
	if evidence.Proof.Type != identity.ProofTransport ||
		evidence.Method != identity.MethodActivityPubSignature && evidence.Method != identity.MethodActivityPubProof {
		return false, false, nil
	}
	proven, err = o.Owns(ctx, evidence.Subject, address)
	return proven, true, err
}
