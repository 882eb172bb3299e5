package a2a

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// bareScopes reports whether a client reads the scopes of a card's security requirements as a bare list: the Go SDK (2.4)
// does, and refuses the whole card otherwise (decision 0053). Its programs are known by Go's own HTTP client.
func bareScopes(header http.Header) bool {
	return strings.HasPrefix(header.Get("User-Agent"), "Go-http-client/")
}

// scopeList is StringList of the .proto file.
type scopeList struct {
	List []string `json:"list"`
}

type securityRequirement struct {
	Schemes map[a2a.SecuritySchemeName]scopeList `json:"schemes"`
}

// listedRequirements are security requirements as A2A 1.0 writes them (section 4.5.1, SecurityRequirement):
// {"schemes":{"openid":{"list":["a2a:send"]}}}.
func listedRequirements(options a2a.SecurityRequirementsOptions) (json.RawMessage, error) {
	list := make([]securityRequirement, len(options))
	for i, option := range options {
		list[i].Schemes = map[a2a.SecuritySchemeName]scopeList{}
		for name, scopes := range option {
			list[i].Schemes[name] = scopeList{append([]string{}, scopes...)}
		}
	}
	return json.Marshal(list)
}

// varied serves a card that is not the same for all programs.
func varied(card http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "User-Agent")
		card.ServeHTTP(w, r)
	})
}
