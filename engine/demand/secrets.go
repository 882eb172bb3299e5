package demand

import (
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"inbox/internal/capability"
	"inbox/internal/redact"
	"inbox/policypart"
)

// Purposes of the tokens of demands.
const (
	purposeState         = "policy state"
	purposeWord          = "link word"
	purposePartner       = "partner of a link"
	purposeLoginState    = "way to a login"
	purposeLoginNonce    = "nonce of a login"
	purposeLoginVerifier = "verifier of a login"
	purposeLoginProof    = "last page of a login"
	purposeQuestion      = "approval question"
)

const tokenBytes = 43 // of a token in its long form

// secrets makes the states, code words and page addresses of demands. Every node derives the same ones.
type secrets struct {
	key  []byte
	base *url.URL
}

// token returns the state of a demand: every node can make it, the database cannot. The row, which has its hash, names the one party
// that it was given to. Its bytes are those of former versions: rows have their hashes, people have them in mails, and nodes of
// the version before put them into mails about new rows.
func (s *secrets) token(id string) string {
	return s.mint(capability.Claim{Purpose: purposeState, What: id, Form: capability.Long, Former: true})
}

// word returns the code word of a link demand: 80 bits that a person can type. For its bytes see token.
func (s *secrets) word(id string) string {
	return wordPrefix + s.mint(capability.Claim{Purpose: purposeWord, What: id, Form: capability.Typed, Former: true})
}

func (s *secrets) mint(claim capability.Claim) string { return capability.Mint(s.key, claim) }

// page returns the address of a demand's page under its id (stored) or its token (presented).
func (s *secrets) page(name string) *url.URL { return s.base.JoinPath("policy", name) }

// Present returns a stored part as the asker may see it: a url on a foreign origin is removed (the second check), and the url of a demand gets the state in place of the id. The state also stands in data under StateKey, for
// peers that answer by message. It is a secret of the asker: the result goes to them alone and is never stored.
func (s *secrets) Present(part policypart.Part) policypart.Part {
	part = part.Confine(s.base)
	id, ours := strings.CutPrefix(part.URL, s.page("").String()+"/")
	if !ours || len(id) != len("00000000-0000-7000-8000-000000000000") {
		return part
	}

	token := s.token(id)
	shown := s.page(token).String()
	part.AuthChallenges = slices.Clone(part.AuthChallenges)

	for i, challenge := range part.AuthChallenges {
		if challenge.Params["realm"] == part.URL {
			part.AuthChallenges[i].Params = maps.Clone(challenge.Params)
			part.AuthChallenges[i].Params["realm"] = shown
		}
	}

	part.URL = shown
	part.Data = withData(part.Data, StateKey, token)
	return part
}

// Keys are the secrets of demands that people are sent: pages, the codes of approvals and the words of links. A word alone is
// what its owner sends to the agent, so only quoted ones are hidden.
func Keys() []redact.Key {
	return []redact.Key{
		{Path: "/policy/", Length: tokenBytes},
		{Near: "approve", Pattern: codeAfter("approve")},
		{Near: "deny", Pattern: codeAfter("deny")},
		{Near: wordPrefix, Pattern: regexp.MustCompile(`(?im)^[ \t]*>.*?\b(link-[0-9a-z]{16})\b`)},
	}
}

// codeAfter finds a code after a word as programs write both: in bold, as HTML, broken over lines of a quotation. A code has a
// letter, so no amount is taken for one.
func codeAfter(word string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b` + word + `(?:[\s\p{Z}>|#*_"'“”:` + "`" + `]|<[^<>]*>){1,20}(` +
		`[0-9](?:[a-z][0-9a-z]{4}|[0-9][a-z][0-9a-z]{3}|[0-9]{2}[a-z][0-9a-z]{2}|[0-9]{3}[a-z][0-9a-z]|[0-9]{4}[a-z]))\b`)
}

// withData returns a copy of data with one more key.
func withData(data map[string]json.RawMessage, key string, value any) map[string]json.RawMessage {
	body, err := json.Marshal(value)
	if err != nil { // only our own shapes are written here
		return data
	}

	changed := maps.Clone(data)
	if changed == nil {
		changed = make(map[string]json.RawMessage, 1)
	}

	changed[key] = body
	return changed
}
