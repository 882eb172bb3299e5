package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// vouch fills in the sender of a relayed message. The first evidence, which is the principal, is what this server knows:
// that the connector says so. What the connector's issuer vouches for comes after it, as far as the operator's list goes
// (message contract, section 10). replayed: the only proof was signed evidence that was used before.
func (m *relayed) vouch(r *http.Request, q *question, name string) (replayed bool, err error) {
	validated := m.validate(r.Context(), q)
	q.rejected = validated.Rejected
	vouched := m.vouchedBy(validated.Evidence, *q)
	if !m.signed && len(vouched) == 0 {
		if m.wasReplayed(validated.Rejected) {
			replayed = true
		} else {
			credentials.WithLabelValues("refused").Inc()
			return false, notVouched()
		}
	}

	trusted := len(vouched) > 0
	if m.signed && m.connector.Issuer != "" && q.message.SenderID != "" && len(vouched) == 0 {
		if word := m.personEvidence(*q); m.options.Validator.Covers(word) && word.CheckShape() == nil {
			vouched, trusted = append(vouched, word), true
		}
	}

	q.sender = m.person(*q, name, vouched)
	if trusted {
		q.relay = relayOf(m.body, q.relay)
	}

	q.chain = chainOf(m.body)
	return replayed, nil
}

// validate checks the signed evidence that came with the message.
func (m *relayed) validate(ctx context.Context, q *question) identity.Validation {
	list := value.Elements(m.body["evidence"])
	if len(list) == 0 {
		list = value.Elements(mentionable(m.body)["identity_evidence"])
	}
	if len(list) == 0 {
		return identity.Validation{}
	}

	pieces := make([]json.RawMessage, 0, len(list))
	for _, one := range list {
		pieces = append(pieces, compact(one))
	}

	recipient := identity.Recipient{Address: q.agent.Address}
	return m.options.Validator.Validate(ctx, identity.Offered{Evidence: pieces, Challenge: q.message.MessageID, Caller: "bridge\n" + q.client}, recipient)
}

// vouchedBy keeps the evidence of the connector's own issuer about the sender of this very message: without the digest of
// the message in its claims, a piece could be put beside other words.
func (m *relayed) vouchedBy(validated []identity.Evidence, q question) (kept []identity.Evidence) {
	issuer, err := identity.CanonicalIssuer(m.connector.Issuer)
	if err != nil {
		return nil
	}

	for _, one := range validated {
		var claims struct {
			Digest string `json:"message_digest"`
		}
		_ = json.Unmarshal(one.Claims, &claims)
		about := q.message.SenderID == "" || one.Subject == q.message.Provider+":"+escaped(q.message.SenderID)
		if one.Issuer == issuer && about && (m.signed || claims.Digest == digestOf(m.about)) {
			kept = append(kept, one)
		}
	}

	return kept
}

// messageBytes are those of the member message as they came. A map finds the member that is read elsewhere and no other: the
// fields of a struct would be filled by Message as well.
func messageBytes(body []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	return members["message"]
}

// digestOf is what evidence has to name in its claims; where there is nothing, what no evidence names by leaving it out.
func digestOf(content []byte) string {
	if len(content) == 0 {
		return "nothing"
	}
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// wasReplayed reports whether evidence of the connector's issuer passed every step but the last one: it was used.
func (m *relayed) wasReplayed(rejected []identity.Rejection) bool {
	issuer, err := identity.CanonicalIssuer(m.connector.Issuer)
	for _, one := range rejected {
		given, wrong := identity.CanonicalIssuer(one.Issuer)
		if err == nil && wrong == nil && one.Code == identity.CodeReplayed && given == issuer {
			return true
		}
	}
	return false
}

// repeatOf finds the first copy of a message whose evidence was used: the same bytes, or it is no repeat.
func (m *relayed) repeatOf(ctx context.Context, q question) (exchange.TurnRecord, error) {
	turns, err := m.options.Turns.Turns(ctx, exchange.TurnFilter{
		Agent: q.agent.Name, Principal: q.sender.Principal(), MessageID: q.nativeID(), Limit: maxEvents,
	})
	if err != nil {
		return exchange.TurnRecord{}, err
	}

	for _, turn := range turns {
		if q.message.MessageID != "" && turn.Message.ID == q.nativeID() && readRoute(turn.Route).Digest == q.digest() {
			return turn, nil
		}
	}
	return exchange.TurnRecord{}, notVouched()
}

// person is the sender as this server knows it.
func (m *relayed) person(q question, name string, vouched []identity.Evidence) normalized.Sender {
	subject, local := connectorSubject(m.connector.Name, q.message.SenderID), m.connector.Name
	if q.message.SenderID != "" {
		local = m.connector.Name + "." + q.message.SenderID
	}

	own := identity.Transport(identity.TransportProof{
		Domain: m.options.Domain, Subject: subject, Method: MethodConnector, Assurance: AssuranceConnector,
		Recipient: q.agent.Address, Addressed: identity.AddressedRequest, IssuedAt: identity.Now().Time,
	})

	own.Source = &identity.Source{Transport: normalized.ViaA2A, Connector: m.connector.Name}
	if name == "" {
		name = q.message.SenderID
	}

	return normalized.Sender{
		Address: identity.Stated(m.address(local, subject)), DisplayName: name, AuthMethod: normalized.AuthA2AOAuth, Verified: true,
		Identities: append([]identity.Evidence{own}, vouched...),
	}
}

// What this server says about people of a connector: no more than that the connector said so.
const (
	MethodConnector    = "urn:mentionable:auth:connector:v0.1"
	AssuranceConnector = "connector"
)

func mentionable(body map[string]any) map[string]any {
	return value.Assoc(value.Assoc(body["metadata"])["mentionable"])
}

// relayOf takes a trusted connector's word about its platform: the body of the answer reaches whom it mentions, or no one.
func relayOf(body map[string]any, otherwise normalized.MentionRelay) normalized.MentionRelay {
	for _, capabilities := range []any{body["recipient_capabilities"], mentionable(body)["recipient_capabilities"]} {
		relay := value.Assoc(value.Assoc(capabilities)["mention_relay"])
		switch kind := value.Text(relay["kind"]); kind {
		case normalized.RelayInline, normalized.RelayNone:
			return normalized.MentionRelay{Kind: kind}
		}
	}
	return otherwise
}

// defaultMaxHops is the ceiling of a chain whose peer names none.
const defaultMaxHops = 4

// chainOf reads the chain of agents behind a message (message contract, section 7). One that is no chain is used up.
func chainOf(body map[string]any) *normalized.AgentChain {
	claimed := mentionable(body)["agent_chain"]
	if claimed == nil {
		return nil
	}

	chain := normalized.AgentChain{MaxHops: defaultMaxHops}
	if json.Unmarshal(compact(claimed), &chain) != nil {
		return &normalized.AgentChain{MaxHops: defaultMaxHops}
	}

	chain.IsFinal = chain.Hop == chain.MaxHops
	return &chain
}
