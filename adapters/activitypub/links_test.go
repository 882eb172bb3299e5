package activitypub

import (
	"slices"
	"testing"

	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/internal/markup/markuptest"
	"inbox/normalized"
	"inbox/policypart"
)

func TestPolicyLinks(t *testing.T) {
	post := func(parts ...normalized.Part) []string {
		var made note
		reply := exchange.Reply{Response: normalized.Response{Parts: parts}}
		(&renderer{site: &site{}}).fill(&made, writing{reply: reply, present: func(part policypart.Part) policypart.Part { return part }}, nil)
		_, addresses := markuptest.Read(t, made.Content)
		return addresses
	}
	markuptest.PolicyLinks(t, func(one markuptest.Answer) []string {
		part := normalized.Part{Kind: normalized.PartText, MIME: one.MIME, Content: one.Content}
		var chain []string
		for _, parts := range notetext.Split([]normalized.Part{part}, len(one.Content)/3, notetext.MaxPosts) {
			chain = append(chain, post(parts...)...)
		}
		if whole := post(part); !slices.Equal(chain, whole) {
			t.Fatalf("a chain of posts leads to %q, one post to %q", chain, whole)
		}
		return chain
	})
	markuptest.PolicyParts(t, func(part policypart.Part) []string {
		return post(normalized.Part{Kind: normalized.PartPolicy, Policy: &part})
	})
}
