package a2a

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// credentialsNamespace is where believed credentials stand in the sender's profile: context, never authorization.
const credentialsNamespace = "dev.mentionable.credentials"

// apply puts what is believed into the message and keeps why the rest is not.
func (a *Adapter) apply(ctx context.Context, in *exchange.Inbound, o *offer, c *call) {
	recipient := identity.Recipient{Address: c.agent.Address, CardURL: a.cardURL(c.agent)}
	belief := a.believe(ctx, identity.Offered{Evidence: o.evidence, Credentials: o.credentials, Challenge: in.Message.ID}, recipient)
	in.Rejected = append(slices.Clone(o.rejected), belief.Rejected...)
	in.Rejected = append(in.Rejected, addEvidence(&in.Message.Sender, belief.Evidence)...)
	addCredentials(&in.Message.Sender, belief)
	capabilities := &in.Message.RecipientCapabilities
	in.FromAgent = capabilities.AgentChain != nil || slices.ContainsFunc(belief.Evidence, func(e identity.Evidence) bool {
		return e.Assurance == identity.AssuranceAgent
	})
	if attested(belief.Evidence) {
		capabilities.MentionRelay = relayOf(o.relay, capabilities.MentionRelay)
	}
	a.addSettlement(ctx, in, o, recipient)
}

// addSettlement hands on what the message offers for a demand.
func (a *Adapter) addSettlement(ctx context.Context, in *exchange.Inbound, o *offer, recipient identity.Recipient) {
	envelopes := identity.Belief{}
	if len(o.envelopes) > 0 {
		envelopes = a.believe(ctx, identity.Offered{Evidence: o.envelopes, Challenge: in.Message.ID}, recipient)
		in.Rejected = append(in.Rejected, envelopes.Rejected...)
	}
	if o.resolution != nil || o.payment != nil || len(envelopes.Evidence) > 0 {
		in.Settlement = &exchange.Settlement{Resolution: o.resolution, Payment: o.payment, Envelopes: envelopes.Evidence}
	}
}

func (a *Adapter) believe(ctx context.Context, offered identity.Offered, recipient identity.Recipient) identity.Belief {
	if len(offered.Evidence)+len(offered.Credentials) == 0 {
		return identity.Belief{}
	}
	if a.options.Believer != nil {
		return a.options.Believer.Believe(ctx, offered, recipient)
	}
	var belief identity.Belief
	for _, list := range []struct {
		kind   string
		pieces []json.RawMessage
	}{{"evidence", offered.Evidence}, {"credential", offered.Credentials}} {
		for range list.pieces {
			belief.Rejected = append(belief.Rejected, identity.Rejection{Code: list.kind + ":untrusted_issuer", Reason: "this server trusts no issuer"})
		}
	}
	return belief
}

// addEvidence puts believed evidence behind the transport's own, which stays the principal. A message holds a limited
// number of pieces together with that one.
func addEvidence(sender *normalized.Sender, believed []identity.Evidence) (rejected []identity.Rejection) {
	list := slices.Clone(sender.Identities)
	total := 0
	for i := range list {
		total += list[i].Size()
	}
	for i := range believed {
		e := &believed[i]
		if size := e.Size(); len(list) < identity.MaxEvidence && total+size <= identity.MaxEvidenceTotalBytes {
			list, total = append(list, *e), total+size
			continue
		}
		rejected = append(rejected, identity.Rejection{
			Code: "evidence:limit_exceeded", Reason: "with the proof of the transport these are too many",
			Issuer: e.Issuer, Subject: e.Subject, Method: e.Method,
		})
	}
	sender.Identities = list
	return rejected
}

// addCredentials puts believed credentials into the profile, where an agent may read them and nothing authorizes.
func addCredentials(sender *normalized.Sender, belief identity.Belief) {
	if len(belief.Credentials) == 0 {
		return
	}
	encoded, err := json.Marshal(map[string]any{"credentials": belief.Credentials})
	if err != nil {
		return // cannot be: they were read from JSON
	}
	profile := normalized.SenderProfile{}
	if sender.Profile != nil {
		profile = *sender.Profile
	}
	extensions := maps.Clone(profile.Extensions)
	if extensions == nil {
		extensions = map[string]json.RawMessage{}
	}
	extensions[credentialsNamespace] = encoded
	profile.Extensions = extensions
	sender.Profile = &profile
}

// attested reports whether an issuer on the trust list vouches for the sender.
func attested(believed []identity.Evidence) bool {
	return slices.ContainsFunc(believed, func(e identity.Evidence) bool { return e.Proof.Type == identity.ProofSignedAttestation })
}

// relayOf takes a trusted Connector's word about its platform: the body of the answer reaches whom it mentions, or
// nobody. Other relays would need our own delivery, which A2A does not have.
func relayOf(wanted any, otherwise normalized.MentionRelay) normalized.MentionRelay {
	relay, _ := wanted.(map[string]any)
	switch kind, _ := relay["kind"].(string); kind {
	case normalized.RelayInline, normalized.RelayNone:
		return normalized.MentionRelay{Kind: kind}
	}
	return otherwise
}
