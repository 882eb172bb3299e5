// Package policypart is the structured refusal: what an agent demands before it goes on (consent, a login, a
// payment) or why it does not go on at all (message contract, sections 8 and 9). It holds shapes and their rules;
// it neither stores demands nor renders them.
package policypart

import (
	"encoding/json"

	"inbox/identity"
)

// Extension is the URI that a card advertises for policy parts.
const Extension = "https://mentionable.dev/ns/policy/v0.1"

// The seven known kinds. Kind is an open string: an unknown one is kept, shown by its message, and never taken
// for success.
const (
	ConsentRequired            = "consent_required"
	Unauthorized               = "unauthorized"
	PaymentRequired            = "payment_required"
	Forbidden                  = "forbidden"
	TooManyRequests            = "too_many_requests"
	UnavailableForLegalReasons = "unavailable_for_legal_reasons"
	ServiceUnavailable         = "service_unavailable"
)

// Part is one policy demand or refusal. Kind and Message are required.
type Part struct {
	Kind                string                     `json:"kind"`
	Code                string                     `json:"code,omitempty"`
	Title               string                     `json:"title,omitempty"`
	Message             string                     `json:"message"`
	MessageTranslations map[string]Translation     `json:"message_translations,omitempty"`
	URL                 string                     `json:"url,omitempty"`
	ActionLabel         string                     `json:"action_label,omitempty"`
	Data                map[string]json.RawMessage `json:"data,omitempty"` // keys in reverse-DNS form

	Scopes            []string          `json:"scopes,omitempty"`          // consent_required
	ExpiresAt         *identity.Time    `json:"expires_at,omitempty"`      // consent_required, payment_required
	AuthChallenges    []Challenge       `json:"auth_challenges,omitempty"` // unauthorized
	SamePerson        bool              `json:"same_person,omitempty"`     // unauthorized: only a login of the sender's own proven address counts
	Accepts           []json.RawMessage `json:"accepts,omitempty"`         // payment_required: x402 requirements as given
	Amount            string            `json:"amount,omitempty"`          // payment_required
	Currency          string            `json:"currency,omitempty"`        // payment_required
	RetryAfterSeconds *int64            `json:"retry_after_seconds,omitempty"`
	BlockedBy         string            `json:"blocked_by,omitempty"` // unavailable_for_legal_reasons, RFC 7725

	Extra map[string]json.RawMessage `json:"-"` // keys of an unknown kind or a newer contract, kept as they came
}

// Translation is a title and message in one language.
type Translation struct {
	Title   string `json:"title,omitempty"`
	Message string `json:"message"`
}

// Challenge is one RFC 9110 authentication challenge: a scheme and its parameters side by side on the wire.
type Challenge struct {
	Scheme string
	Params map[string]string
}

// Outcomes of a Resolution.
const (
	OutcomeGranted = "granted"
	OutcomePaid    = "paid"
	OutcomeDenied  = "denied"
	OutcomeExpired = "expired"
)

// Resolution tells a turn how its demand ended. Its presence proves nothing: the engine checks the state in the
// issuance store before an agent sees it.
type Resolution struct {
	Kind           string                     `json:"kind"`
	InReplyToState string                     `json:"in_reply_to_state,omitempty"`
	Outcome        string                     `json:"outcome"`
	ResolvedAt     identity.Time              `json:"resolved_at"`
	ResolvedBy     *Resolver                  `json:"resolved_by,omitempty"`
	SameAsSender   *bool                      `json:"same_as_sender,omitempty"` // the person who resolved it is proven to be the sender; nil = not known
	Receipt        string                     `json:"receipt,omitempty"`
	Data           map[string]json.RawMessage `json:"data,omitempty"`
}

// MethodOperator is the method of a Resolver who is the operator, by command or by the operator API.
const MethodOperator = "urn:mentionable:auth:operator:v0.1"

// Resolver is the verified identity that resolved a demand.
type Resolver struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	Method  string `json:"method"`
}
