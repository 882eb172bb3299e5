package activitypub

import (
	"context"
	"encoding/json"
	"fmt"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// sender describes the actor and carries the evidence for it. The profile is decoration; rights hang on the evidence.
func (n *notes) sender(ctx context.Context, by proven, agent exchange.AgentProfile, locale string) (normalized.Sender, error) {
	checked, err := n.actors.provenAddress(ctx, by.actor, agent.Name)
	if err != nil {
		return normalized.Sender{}, err
	}
	facts := evidenceClaims{
		Actor: by.actor.ID, Type: by.actor.Type, Scheme: by.scheme, Address: checked.Status, Relay: by.relay,
		MovedFrom: checked.MovedFrom, Proof: by.proofProblem,
	}
	if checked.Status == addressConfirmed {
		facts.Account = checked.Address
	}
	claims, err := json.Marshal(facts)
	if err != nil {
		return normalized.Sender{}, fmt.Errorf("encode claims: %w", err)
	}
	name := notetext.Visible(by.actor.Name, 256)
	authMethod, method := normalized.AuthActivityPubSignature, identity.MethodActivityPubSignature
	if by.scheme == signature.ProofSuite {
		authMethod, method = normalized.AuthActivityPubProof, identity.MethodActivityPubProof
	}
	return normalized.Sender{
		Address: checked.Address, DisplayName: name, Profile: profileOf(by.actor, name, locale),
		AuthMethod: authMethod, Verified: true, KeyID: by.keyID,
		Identities: []identity.Evidence{{
			Subject: by.actor.ID, Issuer: n.options.Domain, Method: method,
			Assurance: identity.AssuranceAddress, Audience: identity.Audience{agent.Address},
			IssuedAt: identity.At(n.now()), Claims: claims,
			Source: &identity.Source{Transport: normalized.ViaActivityPub},
			Proof:  identity.Proof{Type: identity.ProofTransport, VerifiedBy: n.options.Domain, KeyID: by.keyID},
		}},
	}, nil
}

func profileOf(actor *remoteActor, name, locale string) *normalized.SenderProfile {
	profile := &normalized.SenderProfile{
		DisplayName: name, Username: notetext.Visible(actor.Username, 256), URL: actor.URL, Locale: locale,
		Provider: normalized.ViaActivityPub, ProviderSubject: actor.ID,
	}
	if actor.Icon != "" {
		profile.Avatar = &normalized.Image{URL: actor.Icon, MIMEType: document.MediaType(actor.IconType)}
	}
	if !actor.FetchedAt.IsZero() {
		fetched := identity.At(actor.FetchedAt)
		profile.FetchedAt = &fetched
	}
	return profile
}
