package a2a

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"inbox/identity"
	"inbox/internal/webtoken"
)

// TestScopesInCards: cards are as the .proto file of 1.0 has them, for the Go SDK as that reads them, and signed in both
// forms; each form is cached by itself.
func TestScopesInCards(t *testing.T) {
	b, issuer := withIssuer(t)
	keys := identity.KeySet([]identity.PublicKey{issuer.card.Public()})
	ways := map[string]func(program string) reply{
		"public": func(p string) reply {
			return b.do("GET", "/a2a/echo/.well-known/agent-card.json", "", "", "User-Agent", p)
		},
		"origin's": func(p string) reply { return b.do("GET", "/.well-known/agent-card.json", "", "", "User-Agent", p) },
		"REST": func(p string) reply {
			return b.do("GET", "/a2a/echo/rest/extendedAgentCard", b.ada, "", "User-Agent", p)
		},
		"JSON-RPC": func(p string) reply {
			r := b.rpc(b.ada, "GetExtendedAgentCard", "{}", "User-Agent", p)
			r.body = string(r.decode(t).Result)
			return r
		},
	}
	for name, read := range ways {
		of1, ofGo := read("python-httpx/0.28"), read("Go-http-client/1.1")
		var card pb.AgentCard
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(of1.body), &card); err != nil {
			t.Errorf("%s: %v: %s", name, err, of1.body)
		}
		if scopes := card.GetSecurityRequirements()[2].GetSchemes()["openid"].GetList(); strings.Join(scopes, " ") != strings.Join(allScopes, " ") {
			t.Errorf("%s: scopes %v", name, scopes)
		}
		var sdk a2a.AgentCard
		if err := json.Unmarshal([]byte(ofGo.body), &sdk); err != nil || len(sdk.SecurityRequirements[2]["openid"]) != len(allScopes) {
			t.Errorf("%s: the Go SDK reads %+v (%v)", name, sdk.SecurityRequirements, err)
		}
		for _, r := range []reply{of1, ofGo} {
			if err := webtoken.VerifyCard([]byte(r.body), keys); err != nil {
				t.Errorf("%s: %v: %s", name, err, r.body)
			}
		}
		if tag := of1.header.Get("ETag"); tag != "" && (tag == ofGo.header.Get("ETag") || of1.header.Get("Vary") != "User-Agent" ||
			of1.header.Get("Last-Modified") != read("python-httpx/0.28").header.Get("Last-Modified")) {
			t.Errorf("%s: %v", name, of1.header)
		}
	}
}
