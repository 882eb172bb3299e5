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
	"slices"
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
	t.Parallel()
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
				if sender.Address.String() != "@"+agent+"@"+hostA || sender.AuthMethod != normalized.AuthA2AJWT || !sender.Verified || len(sender.Identities) == 0 ||
					sender.Identities[0].Subject != "acct:"+agent+"@"+hostA || sender.Identities[0].Issuer != hostB || sender.Identities[0].Method != identity.MethodA2AJWT {
					t.Errorf("the callee sees %+v", sender)
				}
				stepsInLog(t, a, agent, "message accepted", "run begins", "message answered")
			}
		})
	}
}

// stepsInLog demands that the log has one line for each step of the only message to an agent, in this order.
func stepsInLog(t *testing.T, s *server, agent string, want ...string) {
	t.Helper()
	var got []string
	eventually(t, "the steps are in the log", func() bool {
		got = nil
		for line := range strings.Lines(s.Log()) {
			_, text, _ := strings.Cut(line, `msg="`)
			text, _, _ = strings.Cut(text, `"`)
			if strings.Contains(line, " ms=") && strings.Contains(line, "agent="+agent+" ") && slices.Contains([]string{"message accepted", "run begins", "turn waits", "message answered", "turn failed"}, text) {
				got = append(got, text)
			}
		}
		return len(got) >= len(want)
	})
	if agent == "passer" && !slices.Equal(got, want) { // the other one asks by a call, and waits for it
		t.Errorf("the log of %s has the steps %q", agent, got)
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
	t.Parallel()
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

const slackMethod = "urn:mentionable:auth:slack-workspace-member:v0.1"

// connector vouches for the members of a chat: it publishes its card and signs.
type connector struct {
	Issuer string
	key    identity.SigningKey
}

func startConnector(t *testing.T) *connector {
	t.Helper()
	c := &connector{}
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/.well-known/adapter-card" {
			http.NotFound(writer, request)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		_, _ = writer.Write(identity.ConnectorCard(c.Issuer, nil, []identity.PublicKey{c.key.Public()}, nil))
	}))
	t.Cleanup(server.Close)
	c.Issuer = strings.TrimPrefix(server.URL, "http://")
	c.key = newSigningKey(t, c.Issuer)
	return c
}

func newSigningKey(t *testing.T, issuer string) identity.SigningKey {
	t.Helper()
	key, err := identity.NewSigningKey(issuer)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// attest signs that a person is a member, after the change.
func (c *connector) attest(t *testing.T, audience string, key identity.SigningKey, change func(*identity.Evidence)) identity.Evidence {
	t.Helper()
	e := identity.Evidence{
		Subject: "slack:T123/U456", Method: slackMethod, Assurance: identity.AssurancePlatform, Audience: identity.Audience{audience},
	}
	if change != nil {
		change(&e)
	}
	signed, err := identity.Sign(e, key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func evidenceBody(t *testing.T, id string, mentionable map[string]any) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "SendMessage",
		"params": map[string]any{"message": map[string]any{
			"messageId": id, "role": "ROLE_USER", "parts": []map[string]string{{"text": "hello " + id}},
			"metadata": map[string]any{"mentionable": mentionable},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

//contract:shows message-13 message-14
func TestOnlyGoodEvidenceIsBelieved(t *testing.T) {
	t.Parallel()
	connector := startConnector(t)
	stranger := startConnector(t)
	agent := startScripted(t, func(normalized.Message) normalized.Response { return say("hello") })
	s := start(t, instance.Settings{Agents: agent.table("helper", ""), More: fmt.Sprintf(
		"[[trust]]\nissuer = %q\nmethods = [%q]\nassurance = [\"platform\"]\nsubject_prefixes = [\"slack:T123/\"]\n", connector.Issuer, slackMethod)})
	peer := s.a2aPeer("helper", "connector")
	address := "@helper@" + s.Settings.HTTP
	good := connector.attest(t, address, connector.key, nil)
	forged := connector.attest(t, address, connector.key, nil)
	forged.Subject = "slack:T123/U000"
	expired := time.Now().Add(-time.Hour)
	old := connector.attestAt(t, address, expired)
	long := connector.attest(t, address, connector.key, nil)
	long.Claims = json.RawMessage(`{"long":"` + strings.Repeat("x", 33<<10) + `"}`)
	cases := []struct {
		name     string
		evidence identity.Evidence
		code     string // empty = believed
	}{
		{"good", good, ""},
		{"replayed", good, "evidence:replayed"},
		{"forged", forged, "evidence:invalid_signature"},
		{"expired", old, "evidence:expired"},
		{"wrong audience", connector.attest(t, "@other@"+s.Settings.HTTP, connector.key, nil), "evidence:wrong_audience"},
		{"another workspace", connector.attest(t, address, connector.key, func(e *identity.Evidence) { e.Subject = "slack:T1234/U456" }), "evidence:not_covered"},
		{"a key that is not published", connector.attest(t, address, newSigningKey(t, connector.Issuer), nil), "evidence:unknown_key"},
		{"untrusted issuer", stranger.attest(t, address, stranger.key, nil), "evidence:untrusted_issuer"},
		{"self-issued", connector.attest(t, address, newSigningKey(t, s.Settings.HTTP), nil), "evidence:self_issued"},
		{"on behalf without the right", connector.attest(t, address, connector.key, func(e *identity.Evidence) { e.OnBehalfOf = []string{"acct:boss@example.org"} }), "evidence:delegation_not_allowed"},
		{"over-long", long, "evidence:limit_exceeded"},
		{"transport proof from outside", identity.Evidence{
			Subject: "slack:T123/U456", Issuer: s.Settings.HTTP, Method: slackMethod, Assurance: "platform", Audience: identity.Audience{address},
			IssuedAt: identity.Now(), Proof: identity.Proof{Type: identity.ProofTransport, VerifiedBy: s.Settings.HTTP},
		}, "evidence:own_proof_from_peer"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := len(auditCodes(t, s.Instance))
			task, err := peer.Send(t.Context(), evidenceBody(t, c.name, map[string]any{"identity_evidence": []any{c.evidence}}))
			if err != nil || task.Status.State != completed {
				t.Fatalf("the message itself must go on: %s, %v", task.Status.State, err)
			}
			asked := agent.last(t)
			believed := slices.ContainsFunc(asked.Sender.Identities, func(e identity.Evidence) bool { return e.Method == slackMethod })
			if believed != (c.code == "") {
				t.Errorf("believed: %v; identities %+v", believed, asked.Sender.Identities)
			}
			if codes := auditCodes(t, s.Instance)[before:]; c.code != "" && !slices.Contains(codes, c.code) {
				t.Errorf("on record: %v; want %s", codes, c.code)
			}
		})
	}
	t.Run("nothing of it is stored", func(t *testing.T) {
		originals, err := s.Column(t.Context(), "SELECT body FROM originals")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.Join(originals, ""), good.Proof.Value) {
			t.Error("a signed proof is stored with the original")
		}
	})
}

// attestAt signs as if it were another time.
func (c *connector) attestAt(t *testing.T, audience string, at time.Time) identity.Evidence {
	t.Helper()
	signed, err := identity.Sign(identity.Evidence{
		Subject: "slack:T123/U456", Method: slackMethod, Assurance: identity.AssurancePlatform, Audience: identity.Audience{audience},
	}, c.key, at)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestBadChainsAreRefused(t *testing.T) {
	t.Parallel()
	agent := startScripted(t, func(normalized.Message) normalized.Response { return say("hello") })
	s := start(t, instance.Settings{Agents: agent.table("helper", "")})
	peer := s.a2aPeer("helper", "looper")
	for _, hop := range []string{"-1", "1.5", "99", "0"} {
		t.Run(hop, func(t *testing.T) {
			before := len(auditCodes(t, s.Instance))
			chain := json.RawMessage(`{"hop":` + hop + `,"max_hops":4}`)
			task, err := peer.Send(t.Context(), evidenceBody(t, "hop"+hop, map[string]any{"agent_chain": chain}))
			if err == nil {
				t.Fatalf("a chain at hop %s was taken: %s", hop, task.Status.State)
			}
			if !strings.Contains(err.Error(), "chain:exhausted") {
				t.Errorf("refused with %v; want chain:exhausted", err)
			}
			if codes := auditCodes(t, s.Instance)[before:]; !slices.Contains(codes, "chain:exhausted") {
				t.Errorf("on record: %v; want chain:exhausted", codes)
			}
		})
	}
	if asked := agent.questions(); len(asked) != 0 {
		t.Errorf("the agent was asked %d times", len(asked))
	}
	task, err := peer.Send(t.Context(), evidenceBody(t, "good", map[string]any{"agent_chain": map[string]int{"hop": 4, "max_hops": 9}}))
	if err != nil || task.Status.State != completed {
		t.Fatalf("a chain at its end is answered: %s, %v", task.Status.State, err)
	}
	if chain := agent.last(t).RecipientCapabilities.AgentChain; chain == nil || chain.MaxHops != 4 || !chain.IsFinal {
		t.Errorf("the agent sees %+v; want our ceiling 4 and the last hop", chain)
	}
}
