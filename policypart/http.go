package policypart

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// HTTPHeader returns the header fields under which the part travels over plain HTTP (message contract, section 8):
// WWW-Authenticate (RFC 9110, section 11.6.1), Retry-After (section 10.2.3) and Link with rel="blocked-by" (RFC 7725,
// section 4), each only where the part has it. What cannot be written safely is left out.
func (p Part) HTTPHeader() http.Header {
	header := http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}}
	for _, challenge := range p.AuthChallenges {
		if text := challenge.header(); text != "" {
			header.Add("WWW-Authenticate", text)
		}
	}

	if p.RetryAfterSeconds != nil && *p.RetryAfterSeconds >= 0 {
		header.Set("Retry-After", strconv.FormatInt(*p.RetryAfterSeconds, 10))
	}
	if blocker, err := url.Parse(p.BlockedBy); err == nil && p.BlockedBy != "" && blocker.IsAbs() && !hasControl(p.BlockedBy) {
		header.Add("Link", "<"+linkTarget.Replace(blocker.String())+`>; rel="blocked-by"`)
	}
	return header
}

// linkTarget keeps a URI inside its angle brackets.
var linkTarget = strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", " ", "%20")

// HTTPBody returns the JSON body: {"v":"v0.1","agent":"@a@d","parts":[{"kind":"policy","policy":{…}}]}.
func (p Part) HTTPBody(agent string) ([]byte, error) {
	type part struct {
		Kind   string `json:"kind"`
		Policy Part   `json:"policy"`
	}
	return json.Marshal(struct {
		Version string `json:"v"`
		Agent   string `json:"agent"`
		Parts   []part `json:"parts"`
	}{"v0.1", agent, []part{{"policy", p}}})
}

// header writes a challenge; empty when the scheme is no token, so that nothing is smuggled into the field.
func (c Challenge) header() string {
	if !isToken(c.Scheme) {
		return ""
	}

	parameters := make([]string, 0, len(c.Params))
	for _, name := range slices.Sorted(maps.Keys(c.Params)) {
		if isToken(name) {
			parameters = append(parameters, name+"="+quote(c.Params[name]))
		}
	}
	return strings.TrimSuffix(c.Scheme+" "+strings.Join(parameters, ", "), " ")
}

// quote writes a quoted-string (RFC 9110, section 5.6.4): visible ASCII and spaces, with \ before " and \. Everything
// else becomes "?", because recipients do not agree on another encoding.
func quote(text string) string {
	var quoted strings.Builder
	quoted.WriteByte('"')

	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			quoted.WriteByte('\\')
			quoted.WriteRune(r)
		case r < ' ' || r > '~':
			quoted.WriteByte('?')
		default:
			quoted.WriteRune(r)
		}
	}

	quoted.WriteByte('"')
	return quoted.String()
}

// isToken reports whether text is a token (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
