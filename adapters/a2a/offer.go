package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// maxResolutionBytes bounds the resolution that a message offers; proofs have the limits of package identity.
const maxResolutionBytes = 16 << 10

// offer is what a message brings to be validated or to meet a demand. It lives as long as the request.
type offer struct {
	evidence, credentials, envelopes []json.RawMessage

	resolution *policypart.Resolution
	payment    json.RawMessage
	relay      any // mention_relay as a Connector wants it

	rejected []identity.Rejection

	modes []string // media types that the client accepts in the answer
}

// takeOffer moves proofs and settlements out of the metadata of a request, so that nothing after it can store or log
// them. The same message with fresh proofs is the same message.
func takeOffer(req *a2a.SendMessageRequest) (*offer, error) {
	o := &offer{}
	if req.Config != nil {
		o.modes = req.Config.AcceptedOutputModes
	}

	if req.Message != nil { // what the message says comes before what the request says
		if err := o.take(req.Message.Metadata); err != nil {
			return nil, err
		}
		if len(req.Message.Metadata) == 0 {
			req.Message.Metadata = nil
		}
	}
	return o, o.take(req.Metadata)
}

func (o *offer) take(metadata map[string]any) error {
	mentionable, _ := metadata[mentionableKey].(map[string]any)
	o.list(&o.evidence, "evidence", identity.MaxEvidence, pop(mentionable, evidenceKey))
	o.list(&o.credentials, "credential", identity.MaxCredentials, pop(mentionable, credentialsKey))
	o.list(&o.envelopes, "evidence", identity.MaxEvidence, pop(mentionable, envelopesKey))

	for _, uri := range []string{identity.EvidenceExtension, oldEvidenceExtension} {
		o.list(&o.evidence, "evidence", identity.MaxEvidence, within(pop(metadata, uri), evidenceKey))
	}

	o.list(&o.credentials, "credential", identity.MaxCredentials, within(pop(metadata, identity.CredentialExtension), credentialsKey))
	if o.relay == nil {
		capabilities, _ := mentionable["recipient_capabilities"].(map[string]any)
		o.relay = capabilities["mention_relay"]
	}

	if err := o.takeSettlement(metadata, mentionable); err != nil {
		return err
	}

	if mentionable != nil && len(mentionable) == 0 {
		delete(metadata, mentionableKey)
	}

	return nil
}

func pop(members map[string]any, key string) any {
	value := members[key]
	delete(members, key)
	return value
}

// within reads what stands under the URI of an extension: the list itself, or an object with it.
func within(value any, key string) any {
	if object, ok := value.(map[string]any); ok {
		return object[key]
	}
	return value
}

// list takes pieces within the limits of the contract and rejects the others unread. The limits hold for all lists of
// one kind together.
func (o *offer) list(into *[]json.RawMessage, kind string, most int, value any) {
	if value == nil {
		return
	}

	pieces, ok := value.([]any)
	switch {
	case !ok:
		o.reject(kind, "malformed", "is not a list")
		return
	case len(*into)+len(pieces) > most:
		o.reject(kind, "limit_exceeded", fmt.Sprintf("%d pieces came and %d are allowed", len(*into)+len(pieces), most))
		return
	}

	total := 0
	for _, piece := range *into {
		total += len(piece)
	}

	for _, piece := range pieces {
		encoded, err := json.Marshal(piece)
		total += len(encoded)
		switch {
		case err != nil:
			o.reject(kind, "malformed", "is not JSON")
		case len(encoded) > identity.MaxEvidenceBytes || total > identity.MaxEvidenceTotalBytes:
			o.reject(kind, "limit_exceeded", fmt.Sprintf("%d bytes, %d of all so far, are over the limit", len(encoded), total))
		default:
			*into = append(*into, encoded)
		}
	}
}

func (o *offer) reject(kind, why, reason string) {
	o.rejected = append(o.rejected, identity.Rejection{Code: kind + ":" + why, Reason: reason})
}

// takeSettlement reads the answer to a demand: how it was resolved, and a payment in the form of deployed x402 clients.
func (o *offer) takeSettlement(metadata, mentionable map[string]any) error {
	if value := pop(mentionable, resolutionKey); value != nil && o.resolution == nil {
		resolution, err := readResolution(value)
		if err != nil {
			return err
		}
		o.resolution = resolution
	}

	payload := pop(metadata, paymentPayloadKey)
	switch submitted := metadata[paymentStatusKey] == paymentSubmitted; {
	case metadata[paymentStatusKey] == paymentRejected && o.resolution == nil:
		o.resolution = &policypart.Resolution{Kind: policypart.PaymentRequired, Outcome: policypart.OutcomeDenied}
		return nil
	case !submitted || o.payment != nil:
		return nil
	case payload == nil:
		return inField("message.metadata["+paymentPayloadKey+"]", "is missing; send the payment beside "+paymentStatusKey+" "+paymentSubmitted)
	}

	encoded, err := json.Marshal(payload)
	if err != nil || len(encoded) > maxMetadataBytes {
		return inField("message.metadata["+paymentPayloadKey+"]", "is too large")
	}

	o.payment = encoded
	return nil
}

func readResolution(value any) (*policypart.Resolution, error) {
	const field = "message.metadata.mentionable." + resolutionKey
	encoded, err := json.Marshal(value)
	if err != nil || len(encoded) > maxResolutionBytes {
		return nil, inField(field, "is too large")
	}

	var resolution policypart.Resolution
	if err := json.Unmarshal(encoded, &resolution); err != nil {
		return nil, inField(field, "is not a policy resolution")
	}
	return &resolution, nil
}

// apply puts the validated evidence and credentials into the message and keeps why the rest is not.
func (a *Adapter) apply(ctx context.Context, in *exchange.Inbound, o *offer, c *call) {
	recipient := identity.Recipient{Address: c.agent.Address, CardURL: a.cardURL(c.agent)}
	validated := a.validateEvidence(ctx, identity.Offered{Evidence: o.evidence, Credentials: o.credentials, Challenge: in.Message.ID, Caller: c.caller.limited}, recipient)
	in.Rejected = append(slices.Clone(o.rejected), validated.Rejected...)
	in.Rejected = append(in.Rejected, addEvidence(&in.Message.Sender, validated.Evidence)...)
	addCredentials(&in.Message.Sender, validated)
	capabilities := &in.Message.RecipientCapabilities
	in.FromAgent = capabilities.AgentChain != nil || slices.ContainsFunc(validated.Evidence, func(e identity.Evidence) bool {
		return e.Assurance == identity.AssuranceAgent
	})

	a.nameSpeaker(in, o)
	if attested(validated.Evidence) {
		capabilities.MentionRelay = relayOf(o.relay, capabilities.MentionRelay)
	}
	a.addSettlement(ctx, in, o, c, recipient)
}

func (a *Adapter) validateEvidence(ctx context.Context, offered identity.Offered, recipient identity.Recipient) identity.Validation {
	if len(offered.Evidence)+len(offered.Credentials) == 0 {
		return identity.Validation{}
	}
	if a.options.Validator != nil {
		return a.options.Validator.Validate(ctx, offered, recipient)
	}

	var validated identity.Validation
	for _, list := range []struct {
		kind   string
		pieces []json.RawMessage
	}{{"evidence", offered.Evidence}, {"credential", offered.Credentials}} {
		for range list.pieces {
			validated.Rejected = append(validated.Rejected, identity.Rejection{Code: list.kind + ":untrusted_issuer", Reason: "this server trusts no issuer"})
		}
	}

	return validated
}

// addEvidence puts validated evidence after the transport's own. A message holds a limited number of pieces together with that one.
func addEvidence(sender *normalized.Sender, valid []identity.Evidence) (rejected []identity.Rejection) {
	list := slices.Clone(sender.Identities)
	total := 0
	for i := range list {
		total += list[i].Size()
	}

	for i := range valid {
		e := &valid[i]
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

// credentialsNamespace is where validated credentials stand in the sender's profile: context, never authorization.
const credentialsNamespace = "dev.mentionable.credentials"

// addCredentials puts validated credentials into the profile, where an agent may read them and nothing authorizes.
func addCredentials(sender *normalized.Sender, validated identity.Validation) {
	if len(validated.Credentials) == 0 {
		return
	}

	encoded, err := json.Marshal(map[string]any{"credentials": validated.Credentials})
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
func attested(valid []identity.Evidence) bool {
	return slices.ContainsFunc(valid, func(e identity.Evidence) bool { return e.Proof.Type == identity.ProofSignedAttestation })
}

// relayOf takes a trusted Connector's word about its platform: the body of the answer reaches whom it mentions, or
// no one. Other relays would need our own delivery, which A2A does not have.
func relayOf(wanted any, otherwise normalized.MentionRelay) normalized.MentionRelay {
	relay, _ := wanted.(map[string]any)
	switch kind, _ := relay["kind"].(string); kind {
	case normalized.RelayInline, normalized.RelayNone:
		return normalized.MentionRelay{Kind: kind}
	}
	return otherwise
}

// addSettlement hands on what the message offers for a demand.
func (a *Adapter) addSettlement(ctx context.Context, in *exchange.Inbound, o *offer, c *call, recipient identity.Recipient) {
	envelopes := identity.Validation{}
	if len(o.envelopes) > 0 {
		envelopes = a.validateEvidence(ctx, identity.Offered{Evidence: o.envelopes, Challenge: in.Message.ID, Caller: c.caller.limited}, recipient)
		in.Rejected = append(in.Rejected, envelopes.Rejected...)
	}
	if o.resolution != nil || o.payment != nil || len(envelopes.Evidence) > 0 {
		in.Settlement = &exchange.Settlement{Resolution: o.resolution, Payment: o.payment, Envelopes: envelopes.Evidence}
	}
}

// Values of x402.payment.status, as deployed x402 clients read them.
const (
	paymentRequired  = "payment-required"
	paymentSubmitted = "payment-submitted"
	paymentRejected  = "payment-rejected"
	paymentVerified  = "payment-verified"
	paymentCompleted = "payment-completed"
	paymentFailed    = "payment-failed"

	paymentErrorKey    = "x402.payment.error"
	paymentReceiptsKey = "x402.payment.receipts"
	paymentDataKey     = "dev.mentionable.payment" // of a resolution: payer, network and terms
)

var paymentSentences = map[string]string{
	paymentVerified:  "The payment was verified; the agent works.",
	paymentCompleted: "The payment was completed.",
}

// addPayment writes the x402 keys into a status message that is there anyway. A new demand says its own.
func addPayment(message *a2a.Message, turn exchange.TurnRecord, state a2a.TaskState) {
	for key, value := range payment(turn, state) {
		if message.Metadata[paymentStatusKey] != paymentRequired {
			message.SetMeta(key, value)
		}
	}
}

// paid fills the message of a state that needs no words otherwise: x402 clients read the status message. It returns nil
// where there was no payment.
func paid(message *a2a.Message, turn exchange.TurnRecord, state a2a.TaskState) *a2a.Message {
	keys := payment(turn, state)
	status, _ := keys[paymentStatusKey].(string)
	text := paymentSentences[status]
	if text == "" {
		return nil
	}
	message.Metadata, message.Parts = keys, a2a.ContentParts{a2a.NewTextPart(text)}
	return message
}

// payment returns the x402 keys of a turn whose payment was decided; nil for all others. What was written beside the answer comes
// before what follows from the resolution.
func payment(turn exchange.TurnRecord, state a2a.TaskState) map[string]any {
	keys := map[string]any{}
	resolution := turn.Message.PolicyResolution
	resolved := resolution != nil && resolution.Kind == policypart.PaymentRequired
	if resolved {
		keys[paymentStatusKey] = paymentStatus(resolution.Outcome, state)
		if receipts := receiptOf(turn, resolution); receipts != nil && state.Terminal() {
			keys[paymentReceiptsKey] = receipts
		}
	}

	// Of a turn without a resolution only a failure is believed: its agent writes metadata, too.
	if turn.Response != nil && state.Terminal() && (resolved || state != a2a.TaskStateCompleted) {
		written := turn.Response.Metadata
		for _, key := range []string{paymentStatusKey, paymentErrorKey} {
			if written[key] != "" {
				keys[key] = written[key]
			}
		}
		var receipts []any
		if json.Unmarshal([]byte(written[paymentReceiptsKey]), &receipts) == nil && len(receipts) > 0 {
			keys[paymentReceiptsKey] = receipts
		}
	}

	if len(keys) == 0 {
		return nil
	}
	return keys
}

func paymentStatus(outcome string, state a2a.TaskState) string {
	switch {
	case outcome == policypart.OutcomeDenied:
		return paymentRejected
	case outcome != policypart.OutcomePaid:
		return paymentFailed
	case state == a2a.TaskStateCompleted:
		return paymentCompleted
	case state.Terminal():
		return paymentFailed
	}
	return paymentVerified
}

// receiptOf returns the receipt that is made of the resolution.
func receiptOf(turn exchange.TurnRecord, resolution *policypart.Resolution) []any {
	if resolution.Receipt == "" || resolution.Outcome != policypart.OutcomePaid || stateOf(turn) != a2a.TaskStateCompleted {
		return nil
	}

	receipt := map[string]any{"success": true, "transaction": resolution.Receipt}
	var terms struct {
		Payer   string `json:"payer"`
		Network string `json:"network"`
	}
	if json.Unmarshal(resolution.Data[paymentDataKey], &terms) == nil {
		receipt["network"], receipt["payer"] = terms.Network, terms.Payer
		maps.DeleteFunc(receipt, func(_ string, value any) bool { return value == "" })
	}

	return []any{receipt}
}
