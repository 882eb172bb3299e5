package remote

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"inbox/identity"
	"inbox/internal/fault"
)

func TestTokenIsShownWhereItBelongs(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	agent := newAgent(t, server.URL, func(o *Options) { o.Token = "sesame" })
	mustHandle(t, agent, turnOf("1", "x"))
	if want := []string{"", "Bearer sesame"}; !slices.Equal(server.tokens, want) {
		t.Errorf("tokens %q, want none for the public card and %q", server.tokens, want)
	}
}

func TestPrivateCard(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	server.refuse = func(r *http.Request) bool { return r.Header.Get("Authorization") != "Bearer sesame" }
	mustHandle(t, newAgent(t, server.URL, func(o *Options) { o.Token = "sesame" }), turnOf("1", "x"))
	_, err := handle(t.Context(), t, newAgent(t, server.URL, func(o *Options) { o.Token = "wrong-token" }), turnOf("1", "x"))
	if got := fault.Of(err); !got.Permanent || strings.Contains(err.Error(), "wrong-token") {
		t.Errorf("got %v", err)
	}
}

// tokens returns out tokens of OAuth.
type tokens struct {
	*httptest.Server
	given int
	forms []string
}

func startTokens(t *testing.T, answer func(given int) (status int, body string)) *tokens {
	t.Helper()
	o := &tokens{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		_ = r.ParseForm()
		o.forms = append(o.forms, id+" "+secret+" "+r.PostForm.Get("grant_type")+" "+r.PostForm.Get("scope"))
		o.given++
		status, body := answer(o.given)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *tokens) grant(options *Options) {
	options.Credentials = &ClientCredentials{TokenURL: o.URL + "/token", ClientID: "me", ClientSecret: "hush", Scopes: []string{"a2a:send", "a2a:read"}}
}

func numbered(given int) (int, string) {
	return http.StatusOK, fmt.Sprintf(`{"access_token":"token-%d","token_type":"bearer","expires_in":3600}`, given)
}

func TestClientCredentials(t *testing.T) {
	login := startTokens(t, numbered)
	server := startUpstream(t, wayREST, true, growing)
	agent := newAgent(t, server.URL, login.grant)
	mustHandle(t, agent, turnOf("1", "x"))
	mustHandle(t, agent, turnOf("2", "x"))
	if want := []string{"", "Bearer token-1", "Bearer token-1"}; !slices.Equal(server.tokens, want) {
		t.Errorf("tokens %q, want %q", server.tokens, want)
	}
	if want := []string{"me hush client_credentials a2a:send a2a:read"}; !slices.Equal(login.forms, want) {
		t.Errorf("asked %q, want %q", login.forms, want)
	}
	server.refuse = func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer token-1" } // revoked
	mustHandle(t, agent, turnOf("3", "x"))
	if login.given != 2 {
		t.Errorf("%d tokens were asked for, want 2", login.given)
	}
}

func TestTokensThatEndAreNotKept(t *testing.T) {
	login := startTokens(t, func(given int) (int, string) {
		return http.StatusOK, fmt.Sprintf(`{"access_token":"token-%d","token_type":"Bearer","expires_in":5}`, given)
	})
	server := startUpstream(t, wayRPC, true, growing)
	agent := newAgent(t, server.URL, login.grant)
	mustHandle(t, agent, turnOf("1", "x"))
	mustHandle(t, agent, turnOf("2", "x"))
	if login.given != 2 {
		t.Errorf("%d tokens were asked for, want 2", login.given)
	}
}

func TestLoginsThatFail(t *testing.T) {
	tests := map[string]struct {
		status    int
		body      string
		permanent bool
	}{
		"wrong secret":  {http.StatusUnauthorized, `{"error":"invalid_client","error_description":"hush"}`, true},
		"down":          {http.StatusBadGateway, ``, false},
		"other type":    {http.StatusOK, `{"access_token":"x","token_type":"DPoP"}`, true},
		"two lines":     {http.StatusOK, `{"access_token":"x\r\ny","token_type":"Bearer"}`, true},
		"huge":          {http.StatusOK, strings.Repeat(" ", maxTokenBytes+1), false},
		"refused in OK": {http.StatusOK, `{"error":"invalid_client"}`, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			login := startTokens(t, func(int) (int, string) { return test.status, test.body })
			server := startUpstream(t, wayRPC, true, growing)
			_, err := handle(t.Context(), t, newAgent(t, server.URL, login.grant), turnOf("1", "x"))
			if err == nil || fault.Of(err).Permanent != test.permanent || strings.Contains(err.Error(), "hush") {
				t.Errorf("got %v", err)
			}
			if len(server.received()) != 0 {
				t.Error("the agent was asked without a token")
			}
		})
	}
}

func TestEvidenceIsSignedForTheOtherAgent(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			server := startUpstream(t, way, true, growing)
			server.card["address"] = "@upstream@" + mustURL(t, server.URL).Host
			var audience, sender string
			agent := newAgent(t, server.URL, func(o *Options) {
				o.Sign = func(_ context.Context, v Vouching) ([]identity.Evidence, error) {
					audience, sender = v.Audience, v.Turn.Message.Sender.Address
					return []identity.Evidence{{Subject: "acct:alice@peer.example", Issuer: "inbox.example", Method: "m"}}, nil
				}
			})
			mustHandle(t, agent, turnOf("1", "x"))
			got := server.received()[0]
			mentionable, _ := got.Metadata[mentionableKey].(map[string]any)
			evidence, _ := mentionable[evidenceKey].([]any)
			if len(evidence) != 1 || !slices.Contains(got.Extensions, identity.EvidenceExtension) {
				t.Errorf("metadata %v, extensions %v", got.Metadata, got.Extensions)
			}
			if sender != "@alice@peer.example" || !strings.HasPrefix(audience, "@upstream@127.0.0.1") && !strings.HasPrefix(audience, server.URL) {
				t.Errorf("for %q, of %q", audience, sender)
			}
		})
	}
}

func TestNothingIsSaidOfTheSenderUnsigned(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x"))
	if said := fmt.Sprint(server.received()[0].Metadata); strings.Contains(said, "alice") || strings.Contains(said, evidenceKey) {
		t.Errorf("metadata %s", said)
	}
}
