package a2a

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"inbox/identity"
)

// Members of metadata that carry proofs, payments or states. They are read once and then forgotten: they are neither
// stored nor logged nor passed on (message contract, section 10).
const (
	mentionableKey    = "mentionable"
	evidenceKey       = "identity_evidence"
	credentialsKey    = "verifiable_credentials" //nolint:gosec // G101: a name, no credential
	envelopesKey      = "resumption_envelopes"
	resolutionKey     = "policy_resolution"
	paymentPayloadKey = "x402.payment.payload"
	paymentStatusKey  = "x402.payment.status"

	oldEvidenceExtension = "https://mentionable.dev/spec/identity/v0.1" // read, never written
)

var (
	secretOfMetadata    = []string{identity.EvidenceExtension, oldEvidenceExtension, identity.CredentialExtension, paymentPayloadKey}
	secretOfMentionable = []string{evidenceKey, credentialsKey, envelopesKey, resolutionKey}
)

// redact returns the request as it is kept: without the members that must not be stored, wherever in it an object is
// called metadata. Everything else stays byte for byte.
func redact(document []byte) []byte {
	if !mayHoldSecrets(document) {
		return document
	}
	r := &redactor{in: document, dec: json.NewDecoder(bytes.NewReader(document))}
	if err := r.value("", ""); err != nil {
		return nil // cannot be: the binding has read it
	}
	return r.rest(r.dec.InputOffset()) // what follows the first value was read by no one and is no part of the message
}

// mayHoldSecrets spares most requests the second reading. An escape may hide a name.
func mayHoldSecrets(document []byte) bool {
	if bytes.Contains(document, []byte(`\u00`)) || bytes.Contains(document, []byte(`\/`)) {
		return true
	}

	for _, list := range [][]string{secretOfMetadata, secretOfMentionable} {
		for _, name := range list {
			if bytes.Contains(document, []byte(name)) {
				return true
			}
		}
	}
	return false
}

type span struct{ start, end int64 }

// redactor walks a document once and notes what to cut.
type redactor struct {
	in   []byte
	dec  *json.Decoder
	cuts []span // in order, without overlaps

	depth int
}

// maxNesting is that of encoding/json, which read the message before.
const maxNesting = 10000

var errNesting = errors.New("nested too deeply")

// value walks the value of the member name of an object that is the member above.
func (r *redactor) value(above, name string) error {
	token, err := r.dec.Token()
	if err != nil {
		return err
	}

	r.depth++
	defer func() { r.depth-- }()

	if r.depth > maxNesting {
		return errNesting
	}

	switch token {
	case json.Delim('{'):
		return r.object(above, name)
	case json.Delim('['):
		for r.dec.More() {
			if err := r.value("", ""); err != nil {
				return err
			}
		}
		_, err = r.dec.Token()
	}

	return err
}

func (r *redactor) object(above, name string) error {
	kept, first := r.dec.InputOffset(), true // end of the last member that stays
	for r.dec.More() {
		token, err := r.dec.Token()
		if err != nil {
			return err
		}

		key, _ := token.(string)
		if !secretMember(above, name, key) {
			if err := r.value(name, key); err != nil {
				return err
			}
			kept, first = r.dec.InputOffset(), false
			continue
		}

		var secret json.RawMessage
		if err := r.dec.Decode(&secret); err != nil {
			return err
		}

		end := r.dec.InputOffset()
		if first {
			end = r.pastComma(end)
		}

		r.cut(span{kept, end})
	}

	_, err := r.dec.Token()
	return err
}

// secretMember knows the path that matters. The SDK reads its own members without regard to case, and so do we.
func secretMember(above, name, key string) bool {
	list := secretOfMetadata
	switch {
	case strings.EqualFold(name, "metadata"):
	case name == mentionableKey && strings.EqualFold(above, "metadata"):
		list = secretOfMentionable
	default:
		return false
	}
	return slices.Contains(list, key)
}

// pastComma returns the place after the comma that follows, if one does.
func (r *redactor) pastComma(at int64) int64 {
	rest := bytes.TrimLeft(r.in[at:], " \t\r\n")
	if len(rest) > 0 && rest[0] == ',' {
		return int64(len(r.in)-len(rest)) + 1
	}
	return at
}

// cut notes a span; the next secret of the same object begins where the last one did.
func (r *redactor) cut(s span) {
	if last := len(r.cuts) - 1; last >= 0 && r.cuts[last].start == s.start {
		r.cuts[last].end = s.end
		return
	}
	r.cuts = append(r.cuts, s)
}

// rest returns the document up to end without the cuts.
func (r *redactor) rest(end int64) []byte {
	out := make([]byte, 0, end)
	from := int64(0)
	for _, s := range r.cuts {
		out = append(out, r.in[from:s.start]...)
		from = s.end
	}
	return append(out, r.in[from:end]...)
}
