package policypart

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/identity"
)

// Sizes of a part in bytes.
const (
	MaxBytes = 64 << 10 // the whole part as JSON

	maxNameBytes    = 256
	maxTitleBytes   = 1 << 10
	maxMessageBytes = 16 << 10
	maxURLBytes     = 2048
	maxListed       = 64
)

// Check returns the first rule of shape that the part breaks, or nil. That a url lies on our own origin is asked by
// Confine, which knows the origin.
func (p Part) Check() *identity.ShapeError {
	return first(
		name("kind", p.Kind, true),
		name("code", p.Code, false),
		prose("title", p.Title, maxTitleBytes, false),
		prose("message", p.Message, maxMessageBytes, true),
		p.checkTranslations(),
		p.checkURL(),
		prose("action_label", p.ActionLabel, maxTitleBytes, false),
		p.checkDemand(),
		p.checkFree(),
	)
}

func (p Part) checkTranslations() *identity.ShapeError {
	if len(p.MessageTranslations) > maxListed {
		return broken("message_translations", "has more than 64 languages")
	}

	for _, language := range slices.Sorted(maps.Keys(p.MessageTranslations)) {
		field := "message_translations." + language
		translation := p.MessageTranslations[language]
		if found := first(
			name(field, language, true),
			prose(field+".title", translation.Title, maxTitleBytes, false),
			prose(field+".message", translation.Message, maxMessageBytes, true),
		); found != nil {
			return found
		}
	}

	return nil
}

func (p Part) checkURL() *identity.ShapeError {
	if p.URL == "" {
		return nil
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || len(p.URL) > maxURLBytes || hasControl(p.URL) {
		return broken("url", "must be an https address on the agent's own host")
	}
	return nil
}

// checkDemand checks the fields that belong to one kind each.
func (p Part) checkDemand() *identity.ShapeError {
	switch {
	case len(p.Scopes) > maxListed:
		return broken("scopes", "has more than 64 entries")
	case len(p.AuthChallenges) > maxListed:
		return broken("auth_challenges", "has more than 64 entries")
	case len(p.Accepts) > maxListed:
		return broken("accepts", "has more than 64 entries")
	case p.RetryAfterSeconds != nil && *p.RetryAfterSeconds < 0:
		return broken("retry_after_seconds", "must not be negative")
	case p.Kind == TooManyRequests && p.RetryAfterSeconds == nil:
		return broken("retry_after_seconds", "is required with too_many_requests")
	case p.Kind == PaymentRequired && p.ExpiresAt == nil:
		return broken("expires_at", "is required with payment_required")
	case p.Kind == Unauthorized && len(p.AuthChallenges) == 0:
		return broken("auth_challenges", "is required with unauthorized")
	}

	for i, scope := range p.Scopes {
		if found := name(fmt.Sprintf("scopes[%d]", i), scope, true); found != nil {
			return found
		}
	}

	for i, challenge := range p.AuthChallenges {
		if found := name(fmt.Sprintf("auth_challenges[%d].scheme", i), challenge.Scheme, true); found != nil {
			return found
		}
	}

	return first(name("amount", p.Amount, false), name("currency", p.Currency, false), prose("blocked_by", p.BlockedBy, maxURLBytes, false))
}

// checkFree checks what the contract leaves open: data keys, payment requirements and the size of it all.
func (p Part) checkFree() *identity.ShapeError {
	for _, key := range slices.Sorted(maps.Keys(p.Data)) {
		switch {
		case !reverseDNS(key):
			return broken("data", "keys must be in reverse-DNS form, such as com.example.order")
		case !json.Valid(p.Data[key]):
			return broken("data."+key, "must be JSON")
		}
	}

	for i, accept := range p.Accepts {
		if !json.Valid(accept) {
			return broken(fmt.Sprintf("accepts[%d]", i), "must be JSON")
		}
	}

	body, err := json.Marshal(p)
	if err != nil {
		return broken("", "cannot be written as JSON")
	}
	if len(body) > MaxBytes {
		return &identity.ShapeError{Rule: "is over 64 KiB as JSON", TooLarge: true}
	}

	return nil
}

// Outcomes that a resolution may have.
var outcomes = []string{OutcomeGranted, OutcomePaid, OutcomeDenied, OutcomeExpired}

// Check returns the first rule of shape that the resolution breaks, or nil. It proves nothing about the demand.
func (r Resolution) Check() *identity.ShapeError {
	if found := first(
		name("kind", r.Kind, true),
		prose("in_reply_to_state", r.InReplyToState, maxURLBytes, false),
	); found != nil {
		return found
	}

	switch {
	case !slices.Contains(outcomes, r.Outcome):
		return broken("outcome", "must be granted, paid, denied or expired")
	case r.ResolvedAt.IsZero():
		return broken("resolved_at", "is required")
	case r.ResolvedBy == nil:
	case r.ResolvedBy.Issuer == "" || r.ResolvedBy.Subject == "" || r.ResolvedBy.Method == "":
		return broken("resolved_by", "must have issuer, subject and method")
	}

	return prose("receipt", r.Receipt, maxURLBytes, false)
}

// reverseDNS reports whether a key has at least two labels, so that two vendors never meet under one.
func reverseDNS(key string) bool {
	labels := strings.Split(key, ".")
	return len(labels) >= 2 && len(key) <= maxNameBytes && !slices.Contains(labels, "") && !hasControl(key)
}

func broken(field, rule string) *identity.ShapeError {
	return &identity.ShapeError{Field: field, Rule: rule}
}

func first(found ...*identity.ShapeError) *identity.ShapeError {
	for _, f := range found {
		if f != nil {
			return f
		}
	}
	return nil
}

// name checks a machine-readable text.
func name(field, text string, required bool) *identity.ShapeError {
	if hasControl(text) {
		return broken(field, "must not contain control characters")
	}
	return prose(field, text, maxNameBytes, required)
}

// prose checks a text for people.
func prose(field, text string, limit int, required bool) *identity.ShapeError {
	switch {
	case strings.TrimSpace(text) == "" && required:
		return broken(field, "is required")
	case len(text) > limit:
		return broken(field, fmt.Sprintf("is over %d bytes", limit))
	case !utf8.ValidString(text):
		return broken(field, "must be valid UTF-8")
	}
	return nil
}

func hasControl(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }
