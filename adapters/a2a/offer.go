package a2a

import (
	"encoding/json"
	"fmt"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/identity"
	"inbox/policypart"
)

// maxResolutionBytes bounds the resolution that a message offers; proofs have the limits of package identity.
const maxResolutionBytes = 16 << 10

// offer is what a message brings to be believed or to meet a demand. It lives as long as the request.
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
	if payload == nil || o.payment != nil || metadata[paymentStatusKey] != "payment-submitted" {
		return nil
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
