package normalized

import (
	"encoding/json"

	"inbox/identity"
)

// Evidence has its own encoding in package identity; this is the same without reflection, because every message
// carries at least one piece. A test holds the two together.
func (w *writer) evidence(e *identity.Evidence) {
	w.open('{')
	w.optional("id", e.ID)
	w.field("subject", e.Subject)
	w.field("issuer", e.Issuer)
	w.field("method", e.Method)
	w.optional("assurance", e.Assurance)

	if len(e.Audience) == 1 {
		w.field("audience", e.Audience[0])
	} else {
		w.list("audience", e.Audience)
	}

	if !e.IssuedAt.IsZero() {
		w.time("issued_at", e.IssuedAt)
	}

	w.optionalTime("not_before", e.NotBefore)
	w.optionalTime("expires_at", e.ExpiresAt)
	w.list("on_behalf_of", e.OnBehalfOf)
	w.raw("claims", e.Claims)

	if e.Source != nil {
		w.source(e.Source)
	}
	if e.Proof != (identity.Proof{}) {
		w.proof(&e.Proof)
	}

	w.extra(e.Extra)
	w.close('}')
}

func (w *writer) source(s *identity.Source) {
	w.name("source")
	w.open('{')
	w.optional("transport", s.Transport)
	w.optional("transport_module", s.TransportModule)
	w.optional("connector", s.Connector)
	w.optional("channel", s.Channel)
	w.close('}')
}

func (w *writer) proof(p *identity.Proof) {
	w.name("proof")
	w.open('{')
	w.field("type", p.Type)
	w.optional("verified_by", p.VerifiedBy)
	w.optional("addressed", p.Addressed)
	w.optional("key_id", p.KeyID)
	w.optional("alg", p.Alg)
	w.optional("kid", p.Kid)
	w.optional("value", p.Value)
	w.optional("canonicalization", p.Canonicalization)
	w.optional("token_id", p.TokenID)
	w.close('}')
}

func readIdentities(r *reader) (list []identity.Evidence) {
	if !r.beginArray() {
		return nil
	}
	for r.element() {
		var e identity.Evidence
		readEvidence(r, &e)
		list = append(list, e)
	}
	return list
}

func readEvidence(r *reader, e *identity.Evidence) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "id":
			e.ID = r.string()
		case "subject":
			e.Subject = r.string()
		case "issuer":
			e.Issuer = r.string()
		case "method":
			e.Method = r.string()
		case "assurance":
			e.Assurance = r.string()
		case "audience":
			e.Audience = readAudience(r)
		case "issued_at":
			e.IssuedAt = r.time()
		case "not_before":
			e.NotBefore = optional(r, readInstant)
		case "expires_at":
			e.ExpiresAt = optional(r, readInstant)
		case "on_behalf_of":
			e.OnBehalfOf = r.strings()
		case "claims":
			e.Claims = r.raw()
		case "source":
			e.Source = optional(r, readSource)
		case "proof":
			readProof(r, &e.Proof)
		default:
			readExtra(r, &e.Extra)
		}
	}
}

// readAudience reads a string or a list of strings.
func readAudience(r *reader) identity.Audience {
	if r.peek() == '"' {
		return identity.Audience{r.string()}
	}
	return r.strings()
}

func readSource(r *reader, s *identity.Source) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "transport":
			s.Transport = r.string()
		case "transport_module":
			s.TransportModule = r.string()
		case "connector":
			s.Connector = r.string()
		case "channel":
			s.Channel = r.string()
		default:
			r.skip()
		}
	}
}

func readProof(r *reader, p *identity.Proof) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "type":
			p.Type = r.string()
		case "verified_by":
			p.VerifiedBy = r.string()
		case "addressed":
			p.Addressed = r.string()
		case "key_id":
			p.KeyID = r.string()
		case "alg":
			p.Alg = r.string()
		case "kid":
			p.Kid = r.string()
		case "value":
			p.Value = r.string()
		case "canonicalization":
			p.Canonicalization = r.string()
		case "token_id":
			p.TokenID = r.string()
		default:
			r.skip()
		}
	}
}

// readExtra keeps an unknown key in an exported map.
func readExtra(r *reader, values *map[string]json.RawMessage) {
	if len(*values) >= maxUnknownKeys {
		r.fail("is one unknown key too many")
		return
	}

	key := string(r.key)
	value := append(json.RawMessage(nil), r.span()...)

	if *values == nil {
		*values = map[string]json.RawMessage{}
	}
	(*values)[key] = value
}
