package e2e

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/identity"
	"inbox/normalized"
)

// TestTwoServersTalkWithoutTokens: no token is minted, one line of policy opens the callee.
func TestTwoServersTalkWithoutTokens(t *testing.T) {
	for name, policy := range map[string]func(caller string) string{
		"verified": func(string) string { return `access = "verified"` },
		"rule": func(caller string) string {
			return "access = \"rules\"\n[[agents.rules]]\neffect = \"allow\"\naddress = \"@*@" + caller + "\"\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			hostA, hostB := freeAddress(t), freeAddress(t)
			callee := startScripted(t, func(normalized.Message) normalized.Response { return say("42, gladly") })
			start(t, instance.Settings{HTTP: hostB, Agents: callee.table("worker", policy(hostA))})
			caller := startScripted(t, passesOn("@worker@"+hostB))
			a := start(t, instance.Settings{HTTP: hostA, Agents: caller.table("helper", "") + remoteTable("passer", hostB)})
			for _, agent := range []string{"helper", "passer"} {
				answer := askOwn(t, a, agent)
				if !strings.Contains(answer, "42, gladly") {
					t.Errorf("%s says %q", agent, answer)
				}
				sender := callee.last(t).Sender
				if sender.Address != "@"+agent+"@"+hostA || sender.AuthMethod != normalized.AuthA2AJWT || !sender.Verified || len(sender.Identities) == 0 ||
					sender.Identities[0].Subject != "acct:"+agent+"@"+hostA || sender.Identities[0].Issuer != hostB || sender.Identities[0].Method != identity.MethodA2AJWT {
					t.Errorf("the callee sees %+v", sender)
				}
			}
		})
	}
}

func remoteTable(name, host string) string {
	return fmt.Sprintf("[[agents]]\nname = %q\nkind = \"remote\"\n[agents.remote]\ncard_url = \"http://%s/a2a/worker/.well-known/agent-card.json\"\n", name, host)
}

// askOwn asks an agent of a server with a token of its operator and waits for the end.
func askOwn(t *testing.T, s *server, agent string) string {
	t.Helper()
	peer := s.a2aPeer(agent, "ann-"+agent)
	task, err := peer.Send(t.Context(), load.SendBody("ask-"+agent, "what is six times seven?", false))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the task ends", func() bool {
		if task, err = peer.Get(t.Context(), task.ID); err != nil {
			t.Fatal(err)
		}
		return task.Status.State == completed || task.Status.State == "TASK_STATE_FAILED"
	})
	return texts(task)
}

// domain is a server elsewhere that publishes keys and nothing else.
type domain struct {
	name string
	key  ed25519.PrivateKey
}

func startDomain(t *testing.T) domain {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix("http://"+r.Host, "http://")
		switch r.URL.Path {
		case "/.well-known/jwks.json":
			_, _ = w.Write(identity.KeySet([]identity.PublicKey{{Kid: "k1", Key: public}}))
		case "/.well-known/did.json":
			_, _ = w.Write(identity.DIDDocument(name, []identity.PublicKey{{Kid: "k1", Key: public}}))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(web.Close)
	return domain{strings.TrimPrefix(web.URL, "http://"), private}
}

// token signs claims; those of base are as they must be.
func (d domain) token(audience string, change func(header, claims map[string]any)) string {
	now := time.Now().Unix()
	header := map[string]any{"alg": "EdDSA", "kid": "k1", "typ": "JWT"}
	claims := map[string]any{
		"iss": "https://" + d.name, "sub": "@eve@" + d.name, "aud": audience, "jti": rand.Text(), "iat": now, "exp": now + 120,
	}
	if change != nil {
		change(header, claims)
	}
	piece := func(v any) string {
		body, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(body)
	}
	signed := piece(header) + "." + piece(claims)
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(d.key, []byte(signed)))
}

// knock lists the tasks of an agent with a token and returns the status.
func knock(t *testing.T, s *server, agent, token string) (int, http.Header) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"` + rand.Text() + `","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.URL()+"/a2a/"+agent, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header
}

func TestPeersSignForThemselves(t *testing.T) {
	friend, stranger := startDomain(t), startDomain(t)
	host := freeAddress(t)
	rules := "access = \"rules\"\n[[agents.rules]]\neffect = \"allow\"\naddress = \"@*@" + friend.name + "\"\n"
	s := start(t, instance.Settings{HTTP: host, Agents: "[[agents]]\nname = \"guarded\"\nkind = \"echo\"\n" + rules + "[[agents]]\nname = \"other\"\nkind = \"echo\"\n" + rules})
	me := "@guarded@" + host
	if status, _ := knock(t, s, "guarded", friend.token(me, nil)); status != http.StatusOK {
		t.Fatalf("a peer that is let in: %d", status)
	}
	if status, _ := knock(t, s, "guarded", friend.token("http://"+host+"/a2a/guarded", nil)); status != http.StatusOK {
		t.Errorf("with the resource as audience: %d", status)
	}
	did := func(_, claims map[string]any) {
		claims["iss"] = identity.DIDOf(friend.name)
	}
	if status, _ := knock(t, s, "guarded", friend.token(me, did)); status != http.StatusOK {
		t.Errorf("by its DID: %d", status)
	}
	used := friend.token(me, nil)
	knock(t, s, "guarded", used)
	for name, token := range map[string]string{
		"replay":            used,
		"wrong audience":    friend.token("@other@"+host, nil),
		"expired":           friend.token(me, func(_, c map[string]any) { c["iat"], c["exp"] = time.Now().Unix()-400, time.Now().Unix()-200 }),
		"too long":          friend.token(me, func(_, c map[string]any) { c["exp"] = time.Now().Unix() + 600 }),
		"from the future":   friend.token(me, func(_, c map[string]any) { c["iat"], c["exp"] = time.Now().Unix()+200, time.Now().Unix()+300 }),
		"no jti":            friend.token(me, func(_, c map[string]any) { delete(c, "jti") }),
		"no exp":            friend.token(me, func(_, c map[string]any) { delete(c, "exp") }),
		"untrusted domain":  stranger.token(me, nil),
		"somebody's domain": stranger.token(me, func(_, c map[string]any) { c["iss"], c["sub"] = "https://"+friend.name, "@eve@"+friend.name }),
		"other subject":     friend.token(me, func(_, c map[string]any) { c["sub"] = "@eve@" + stranger.name }),
		"our own name":      friend.token(me, func(_, c map[string]any) { c["iss"], c["sub"] = "https://"+host, me }),
		"no algorithm":      friend.token(me, func(h, _ map[string]any) { h["alg"] = "none" }),
		"unknown key":       friend.token(me, func(h, _ map[string]any) { h["kid"] = "k2" }),
	} {
		status, header := knock(t, s, "guarded", token)
		if status != http.StatusUnauthorized || !strings.Contains(header.Get("WWW-Authenticate"), "resource_metadata=") {
			t.Errorf("%s: %d %q", name, status, header.Get("WWW-Authenticate"))
		}
	}
	s.stop()
	s.start()
	if status, _ := knock(t, s, "guarded", used); status != http.StatusUnauthorized {
		t.Errorf("a token that was used before the restart: %d", status)
	}
}
