package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/safehttp"
	"inbox/normalized"
	"inbox/policypart"
)

// site is a server of its own on loopback: WebFinger, cards, agents, keys.
type site struct {
	t       *testing.T
	domain  string // host:port
	engine  *engine
	adapter *Adapter
	mux     *http.ServeMux
	key     identity.SigningKey
	client  *safehttp.Client
	token   string // opens the agents
	seen    []*http.Request
	mu      sync.Mutex
}

func (s *site) Sign(_ context.Context, e identity.Evidence) (identity.Evidence, error) {
	return identity.Sign(e, s.key, time.Now())
}

// once remembers what was used.
type once struct{ used sync.Map }

func (o *once) Once(_ context.Context, key string, _ time.Time) (bool, error) {
	_, before := o.used.LoadOrStore(key, true)
	return !before, nil
}

// documents fetches key documents as the root package does.
type documents struct{ client *safehttp.Client }

func (d documents) Fetch(ctx context.Context, address string) ([]byte, error) {
	response, err := d.client.Get(ctx, address, safehttp.GetOptions{MaxRedirects: -1})
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}

func newSite(t *testing.T, change func(*site, *Options)) *site {
	t.Helper()
	s := &site{t: t, engine: newEngine("echo"), mux: http.NewServeMux()}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Clone(context.Background()))
		s.mu.Unlock()
		s.mux.ServeHTTP(w, r)
	}))
	s.domain = web.Listener.Addr().String()
	s.engine.agents[0].Address = "@echo@" + s.domain
	s.token = s.engine.token("peer", "")
	var err error
	if s.key, err = identity.NewSigningKey(s.domain); err != nil {
		t.Fatal(err)
	}
	s.client = safehttp.New(safehttp.Options{AllowPrivate: true, HeaderTimeout: time.Minute, Timeout: time.Minute})
	blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	options := Options{
		Domain: s.domain, PublicURL: "http://" + s.domain, Receiver: s.engine, Directory: s.engine, Turns: s.engine, Runs: s.engine,
		Tokens: s.engine, Claims: s.engine, Blobs: blobs, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(s, &options)
	}
	if s.adapter, err = New(options); err != nil {
		t.Fatal(err)
	}
	router, err := httpserver.New(httpserver.Options{Routes: s.adapter.Routes(), WithoutHealth: true})
	if err != nil {
		t.Fatal(err)
	}
	s.mux.Handle("/", router.Handler())
	s.mux.HandleFunc("/.well-known/webfinger", s.webfinger)
	s.mux.HandleFunc("/.well-known/adapter-card", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(identity.ConnectorCard(s.domain, nil, []identity.PublicKey{s.key.Public()}, nil))
	})
	web.Start()
	t.Cleanup(func() {
		s.client.Close()
		s.engine.stop()
		web.Close()
		await.Done(t, s.engine.running.Wait, "the end of the agent's runs")
	})
	return s
}

func (s *site) webfinger(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Query().Get("resource"), "acct:"), "@")
	agent, known := s.engine.Agent(name)
	if !known {
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"subject": "acct:" + agent.Address[1:], "links": s.adapter.Links(agent)})
}

func (s *site) caller(token string) *Caller {
	s.t.Helper()
	caller, err := NewCaller(CallerOptions{
		Client: s.client, Signer: s, Domain: s.domain, Tokens: func(string) string { return token }, AllowHTTP: true,
		TimeLimit: 30 * time.Second,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return caller
}

// trusting lets a site believe an issuer.
func trusting(issuer string, delegated bool) func(*site, *Options) {
	return func(s *site, o *Options) {
		var trust []identity.TrustedIssuer
		if issuer != "" {
			trust = append(trust, identity.TrustedIssuer{
				Issuer: issuer, Methods: []string{methodAgent, identity.MethodActivityPubSignature}, AllowDelegated: delegated,
				Assurance: []string{identity.AssuranceAgent, identity.AssuranceAddress}, SubjectPrefixes: []string{"https://"},
			})
		}
		validator, err := identity.NewValidator(identity.ValidatorOptions{
			Trust: trust, Documents: documents{s.client}, Replays: &once{}, OwnIssuer: s.domain, AllowHTTP: true,
		})
		if err != nil {
			s.t.Fatal(err)
		}
		o.Validator = validator
	}
}

const actor = "https://social.example/users/ada"

func (s *site) dispatch(to *site, text string) exchange.Dispatch {
	recipient := "@echo@" + s.domain
	return exchange.Dispatch{
		ID: newID(), TurnID: newID(), Number: 1, Agent: "echo", From: recipient, To: "@echo@" + to.domain, ThreadID: "thread-1",
		Parts: []normalized.Part{normalized.Text(text)}, Chain: normalized.AgentChain{Hop: 1, MaxHops: 2},
		Sender: normalized.Sender{Address: identity.Stated("@ada@social.example"), Identities: []identity.Evidence{
			identity.Transport(identity.TransportProof{
				Addressed: identity.AddressedRequest,
				Domain:    s.domain, Subject: actor, Method: identity.MethodActivityPubSignature, Assurance: identity.AssuranceAddress,
				Recipient: recipient, IssuedAt: time.Now(),
			}),
			{Subject: "slack:T1/U1", Issuer: "connector.example", Method: "urn:mentionable:auth:slack:v0.1", Proof: identity.Proof{Type: identity.ProofSignedAttestation}},
		}},
	}
}

func TestACallIsBelievedWhereItsIssuerIsTrusted(t *testing.T) {
	a := newSite(t, nil)
	for name, c := range map[string]struct {
		change   func(*site, *Options)
		believed []string
		rejected string
	}{
		"trusted and may delegate": {trusting(a.domain, true), []string{"agent", "agent for " + actor, "user"}, ""},
		"trusted":                  {trusting(a.domain, false), []string{"agent", "user"}, identity.CodeDelegation},
		"not on the list":          {trusting("", false), nil, strings.Repeat(" "+identity.CodeUntrustedIssuer, 3)[1:]},
		"another one is":           {trusting("other.example", true), nil, strings.Repeat(" "+identity.CodeUntrustedIssuer, 3)[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSite(t, c.change)
			d := a.dispatch(b, "hello")
			got, err := a.caller(b.token).Call(t.Context(), d)
			if err != nil || got.Outcome() != normalized.StatusCompleted || got.Parts[0].Content != "hello" {
				t.Fatalf("%+v %v", got, err)
			}
			in := b.engine.last()
			var believed []string
			for _, e := range in.Message.Sender.Identities[1:] {
				switch {
				case e.Issuer != a.domain || e.Source.Connector != a.domain || e.Audience[0] != d.To:
					t.Errorf("evidence %+v", e)
				case e.Subject == actor:
					believed = append(believed, "user")
				case e.Subject == "https://"+a.domain+"/.well-known/agent-card/echo" && len(e.OnBehalfOf) == 1:
					believed = append(believed, "agent for "+e.OnBehalfOf[0])
				default:
					believed = append(believed, "agent")
				}
			}
			if fmt.Sprint(believed) != fmt.Sprint(c.believed) || codesOf(in.Rejected) != c.rejected {
				t.Errorf("believed %v, rejected %s", believed, codesOf(in.Rejected))
			}
			chain := in.Message.RecipientCapabilities.AgentChain
			if !in.FromAgent || chain == nil || chain.Hop != 1 || chain.MaxHops != 2 || in.Message.ID != d.ID || in.Conversation != "thread-1" || !exchange.IsConversationID(in.Message.ThreadID) {
				t.Errorf("message %+v", in.Message)
			}
			if bytes.Contains(in.Original, []byte("signed-attestation")) {
				t.Errorf("kept %s", in.Original)
			}
		})
	}
}

// fleeting are the values of a call that differ from run to run.
var fleeting = regexp.MustCompile(`127\.0\.0\.1:\d+|key-[\w-]{43}|[\w-]{86}|[A-Z2-7]{26}`)

func TestTheCallOnTheWire(t *testing.T) {
	a, b := newSite(t, nil), newSite(t, nil)
	var sent []byte
	b.mux.HandleFunc("POST /a2a/echo", func(w http.ResponseWriter, r *http.Request) {
		sent, _ = io.ReadAll(r.Body)
		if r.Header.Get("A2A-Version") != "1.0" || !strings.Contains(r.Header.Get("A2A-Extensions"), identity.EvidenceExtension) {
			t.Errorf("header %v", r.Header)
		}
		forward(w, r, sent, b)
	})
	if _, err := a.caller(b.token).Call(t.Context(), a.dispatch(b, "hello")); err != nil {
		t.Fatal(err)
	}
	var request struct{ Params json.RawMessage }
	if err := json.Unmarshal(sent, &request); err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer(a.domain, "A", b.domain, "B")
	compare(t, "call.json", fleeting.ReplaceAllString(names.Replace(string(request.Params)), "X"))
}

func TestARepeatedCallIsOneTask(t *testing.T) {
	a := newSite(t, nil)
	b := newSite(t, trusting(a.domain, true))
	d, caller := a.dispatch(b, "hello"), a.caller(b.token)
	for range 3 {
		if got, err := caller.Call(t.Context(), d); err != nil || got.Parts[0].Content != "hello" {
			t.Fatalf("%+v %v", got, err)
		}
	}
	if b.engine.receives != 1 || len(b.engine.inbounds) != 3 {
		t.Errorf("%d turns of %d messages", b.engine.receives, len(b.engine.inbounds))
	}
	lookups := 0
	for _, r := range b.seen {
		if strings.HasPrefix(r.URL.Path, "/.well-known/webfinger") || strings.HasPrefix(r.URL.Path, "/.well-known/agent-card/") {
			lookups++
			if r.Header.Get("Authorization") != "" {
				t.Errorf("%s got the token", r.URL)
			}
		}
	}
	if lookups != 2 {
		t.Errorf("%d lookups, want one of each", lookups)
	}
}

func TestCallsSeeWhatBecameOfTheTask(t *testing.T) {
	demand := func(kind string) func(context.Context, *run) normalized.Response {
		return func(ctx context.Context, r *run) normalized.Response {
			part := policypart.Part{Kind: kind, Message: "please", URL: "https://b.example/policy/1", Data: map[string]json.RawMessage{stateKey: json.RawMessage(`"SECRET"`)}}
			r.demand(ctx, part)
			return normalized.Response{}
		}
	}
	answers := func(response normalized.Response) func(context.Context, *run) normalized.Response {
		return func(_ context.Context, r *run) normalized.Response { return response.Answering(r.turn.Message) }
	}
	policy := func(kind string) normalized.Response {
		return normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: kind, Message: "never"}}}}
	}
	for name, c := range map[string]struct {
		agent  func(context.Context, *run) normalized.Response
		status string
		code   string
		text   string
		policy string
	}{
		"silent":    {answers(normalized.Response{Silent: true}), "completed", "", "", ""},
		"failed":    {answers(normalized.Response{Status: "failed", Error: &normalized.ResponseError{Message: "sorry\nno"}}), "failed", CodeRefused, "sorry no", ""},
		"refused":   {answers(policy(policypart.UnavailableForLegalReasons)), "failed", CodeRefused, "never", ""},
		"question":  {asking, "input_required", "", "which one?", ""},
		"consent":   {demand(policypart.ConsentRequired), "input_required", "", "", policypart.ConsentRequired},
		"payment":   {demand(policypart.PaymentRequired), "input_required", "", "", policypart.PaymentRequired},
		"too large": {answers(normalized.Response{Parts: []normalized.Part{normalized.Text(strings.Repeat("x", 256<<10))}}), "completed", "", "more bytes are not shown.)", ""},
		"too large to read": {answers(normalized.Response{Parts: []normalized.Part{normalized.Text(strings.Repeat("x", maxCallBytes))}}), "completed", "",
			"(The answer is too large to be shown.)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newSite(t, nil), newSite(t, func(_ *site, o *Options) { o.Present = func(p policypart.Part) policypart.Part { return p } })
			b.engine.agent = c.agent
			got, err := a.caller(b.token).Call(t.Context(), a.dispatch(b, "hello"))
			if err != nil || got.Outcome() != c.status {
				t.Fatalf("%+v %v", got, err)
			}
			body, _ := json.Marshal(got)
			if (got.Error != nil) != (c.code != "") || got.Error != nil && got.Error.Code != c.code || !strings.Contains(string(body), c.text) || strings.Contains(string(body), "SECRET") {
				t.Errorf("%s", body)
			}
			if part := got.Policy(); (part != nil) != (c.policy != "") || part != nil && (part.Kind != c.policy || part.URL == "") {
				t.Errorf("policy %+v", part)
			}
			for _, broken := range normalized.Violations(normalized.Message{ReceivedTrace: &got}, normalized.DefaultLimits()) {
				if strings.HasPrefix(broken.Field, "received_trace") {
					t.Errorf("no trace of the contract: %v", broken)
				}
			}
		})
	}
}

func TestCallsPollAWorkingTask(t *testing.T) {
	a := newSite(t, nil)
	b := newSite(t, func(_ *site, o *Options) { o.WaitLimit = time.Millisecond })
	polled := make(chan struct{}, 8)
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		hold(ctx, polled)
		return echo(ctx, r)
	}
	b.mux.HandleFunc("POST /a2a/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"GetTask"`)) {
			polled <- struct{}{}
		}
		forward(w, r, body, b)
	})
	if got, err := a.caller(b.token).Call(t.Context(), a.dispatch(b, "hello")); err != nil || got.Parts[0].Content != "hello" {
		t.Fatalf("%+v %v", got, err)
	}

	forever, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	block := make(chan struct{})
	b.engine.agent = func(ctx context.Context, _ *run) normalized.Response {
		hold(ctx, block)
		return normalized.Response{Silent: true}
	}
	defer close(block)
	_, err := a.caller(b.token).Call(forever, a.dispatch(b, "hello"))
	if f := fault.Of(err); err == nil || f.Permanent || f.Kind != fault.Unavailable {
		t.Errorf("at the deadline: %v", err)
	}
}

// hasty is a client whose time for an answer is over in its first request, once the agent there works.
type hasty struct {
	Client
	works <-chan struct{}
	first atomic.Bool
}

func (h *hasty) Do(request *http.Request) (*http.Response, error) {
	if h.first.Swap(true) {
		return h.Client.Do(request)
	}
	ctx, giveUp := context.WithCancelCause(request.Context())
	defer giveUp(nil)
	go func() {
		select {
		case <-h.works:
			giveUp(safehttp.ErrTimeout)
		case <-ctx.Done():
		}
	}()
	return h.Client.Do(request.WithContext(ctx))
}

func TestAClientWithoutPatienceHearsOfTheTask(t *testing.T) {
	a := newSite(t, nil)
	b := newSite(t, trusting(a.domain, true))
	works, release := make(chan struct{}), make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		close(works)
		hold(ctx, release)
		return echo(ctx, r)
	}
	var once sync.Once
	b.mux.HandleFunc("POST /a2a/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"GetTask"`)) {
			once.Do(func() { close(release) })
		}
		forward(w, r, body, b)
	})
	caller, err := NewCaller(CallerOptions{
		Client: &hasty{Client: a.client, works: works}, Signer: a, Domain: a.domain, Tokens: func(string) string { return b.token }, AllowHTTP: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := caller.Call(t.Context(), a.dispatch(b, "hello"))
	if err != nil || got.Parts[0].Content != "hello" || b.engine.receives != 1 {
		t.Fatalf("%+v %v, %d turns", got, err, b.engine.receives)
	}
	if in := b.engine.last(); len(in.Rejected) != 0 || len(in.Message.Sender.Identities) != 4 {
		t.Errorf("the second send has used evidence: %+v", in.Rejected)
	}
}

// forward hands a request to the adapter behind a handler of a test.
func forward(w http.ResponseWriter, r *http.Request, body []byte, s *site) {
	router, err := httpserver.New(httpserver.Options{Routes: s.adapter.Routes(), WithoutHealth: true})
	if err != nil {
		s.t.Error(err)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	router.Handler().ServeHTTP(w, r)
}

func TestRefusedAndBrokenCalls(t *testing.T) {
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"error":{"message":"because"}}`)
		}
	}
	says := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	for name, c := range map[string]struct {
		path   string // handler in front of the adapter's
		serve  http.HandlerFunc
		token  string // "" = the right one
		code   string // of a failed response
		retry  bool
		giveUp bool
	}{
		"wrong token":           {token: "inbox_" + strings.Repeat("A", 43), code: CodeRefused},
		"401":                   {path: "POST /a2a/echo", serve: status(401), code: CodeRefused},
		"403":                   {path: "POST /a2a/echo", serve: status(403), code: CodeRefused},
		"429":                   {path: "POST /a2a/echo", serve: status(429, "Retry-After", "7"), retry: true},
		"503":                   {path: "POST /a2a/echo", serve: status(503), retry: true},
		"404":                   {path: "POST /a2a/echo", serve: status(404), giveUp: true},
		"redirect":              {path: "POST /a2a/echo", serve: status(307, "Location", "/elsewhere"), giveUp: true},
		"invalid params":        {path: "POST /a2a/echo", serve: says(`{"jsonrpc":"2.0","id":"1","error":{"code":-32602,"message":"m"}}`), giveUp: true},
		"no JSON":               {path: "POST /a2a/echo", serve: says(`<html>`), giveUp: true},
		"no task":               {path: "POST /a2a/echo", serve: says(`{"jsonrpc":"2.0","id":"1","result":{}}`), giveUp: true},
		"no WebFinger":          {path: "/.well-known/webfinger", serve: status(404), giveUp: true},
		"WebFinger down":        {path: "/.well-known/webfinger", serve: status(500), retry: true},
		"WebFinger of another":  {path: "/.well-known/webfinger", serve: says(`{"subject":"acct:mallory@x.example","links":[]}`), giveUp: true},
		"WebFinger in circles":  {path: "/.well-known/webfinger", serve: status(302, "Location", "/.well-known/webfinger?again"), giveUp: true},
		"WebFinger is not JSON": {path: "/.well-known/webfinger", serve: says("<html>"), giveUp: true},
		"WebFinger too long":    {path: "/.well-known/webfinger", serve: says(`"` + strings.Repeat("x", 300<<10)), giveUp: true},
		"card down":             {path: "/.well-known/agent-card/echo", serve: status(502), retry: true},
		"card of another":       {path: "/.well-known/agent-card/echo", serve: says(`{"address":"@mallory@x.example","a2a":{"endpoint":"https://x.example"}}`), giveUp: true},
		"card without endpoint": {path: "/.well-known/agent-card/echo", serve: says(`{}`), giveUp: true},
		"endpoint elsewhere":    {path: "/.well-known/agent-card/echo", serve: says(`{"a2a":{"endpoint":"http://127.0.0.1:1/"}}`), giveUp: true},
		"endpoint is a file":    {path: "/.well-known/agent-card/echo", serve: says(`{"a2a":{"endpoint":"file:///etc/passwd"}}`), giveUp: true},
		"other transport":       {path: "/.well-known/agent-card/echo", serve: says(`{"a2a":{"endpoint":"https://x.example","transport":"https+sse"}}`), giveUp: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newSite(t, nil)
			b := newSite(t, nil)
			token := b.token
			if c.token != "" {
				token = c.token
			}
			if c.path != "" {
				inner := b.mux
				b.mux = http.NewServeMux()
				b.mux.Handle("/", inner)
				b.mux.HandleFunc(c.path, c.serve)
			}
			got, err := a.caller(token).Call(t.Context(), a.dispatch(b, "hello"))
			switch f := fault.Of(err); {
			case err == nil:
				if got.Error == nil || got.Error.Code != c.code {
					t.Errorf("response %+v", got)
				}
			case !c.retry && !c.giveUp, f.Permanent != c.giveUp, f.Kind != fault.Unavailable:
				t.Errorf("error %v, permanent %v", err, f.Permanent)
			case strings.Contains(err.Error(), token) || strings.Contains(f.Public, b.domain):
				t.Errorf("the error tells too much: %v", err)
			case name == "429" && f.RetryAfter != 7*time.Second:
				t.Errorf("retry after %s", f.RetryAfter)
			}
		})
	}
}

func TestCallsWhereNobodyIs(t *testing.T) {
	a, b := newSite(t, nil), newSite(t, nil)
	d := a.dispatch(b, "hello")
	d.To = "@nobody@" + b.domain
	if _, err := a.caller("").Call(t.Context(), d); !fault.Of(err).Permanent {
		t.Errorf("unknown agent: %v", err)
	}
	d.To = "@echo@127.0.0.1:1"
	if _, err := a.caller("").Call(t.Context(), d); err == nil || fault.Of(err).Permanent {
		t.Errorf("closed port: %v", err)
	}
	d.To = "nonsense"
	if _, err := a.caller("").Call(t.Context(), d); !fault.Of(err).Permanent {
		t.Errorf("no address: %v", err)
	}
	d = a.dispatch(b, "hello")
	d.Parts = []normalized.Part{{Kind: normalized.PartToolCall}}
	if _, err := a.caller(b.token).Call(t.Context(), d); !fault.Of(err).Permanent {
		t.Errorf("nothing to send: %v", err)
	}
	strict, err := NewCaller(CallerOptions{Client: a.client, Signer: a, Domain: a.domain})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := strict.Call(t.Context(), a.dispatch(b, "hello")); err == nil {
		t.Error("plain http without AllowHTTP")
	}
	for _, options := range []CallerOptions{{Signer: a, Domain: "a.example"}, {Client: a.client, Domain: "a.example"}, {Client: a.client, Signer: a, Domain: "a b"}} {
		if _, err := NewCaller(options); err == nil {
			t.Errorf("accepted %+v", options)
		}
	}
}

func TestCallsFallBackToTheOldVersion(t *testing.T) {
	for name, card := range map[string]string{"as the card says": `"0.3.0"`, "as the server says": `""`} {
		t.Run(name, func(t *testing.T) {
			a, b := newSite(t, nil), newSite(t, nil)
			b.mux.HandleFunc("/.well-known/agent-card/echo", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"a2a":{"endpoint":"http://%s/a2a/echo","protocol_version":%s}}`, b.domain, card)
			})
			methods := []string{}
			b.mux.HandleFunc("POST /a2a/echo", func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var request struct{ Method string }
				_ = json.Unmarshal(body, &request)
				if methods = append(methods, request.Method); request.Method == "SendMessage" {
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":"1","error":{"code":-32601,"message":"what?"}}`)
					return
				}
				forward(w, r, body, b)
			})
			caller := a.caller(b.token)
			for range 2 {
				if got, err := caller.Call(t.Context(), a.dispatch(b, "hello")); err != nil || got.Parts[0].Content != "hello" {
					t.Fatalf("%+v %v", got, err)
				}
			}
			want := "[message/send message/send]"
			if card == `""` {
				want = "[SendMessage message/send message/send]"
			}
			if fmt.Sprint(methods) != want {
				t.Errorf("methods %v", methods)
			}
		})
	}
}

func TestAnswersThatBreakTheRulesAreNotPassedOn(t *testing.T) {
	caller := newSite(t, nil).caller("")
	demand := func(change func(*policypart.Part)) a2a.SendMessageResult {
		part := policypart.Part{Kind: policypart.ConsentRequired, Message: "please"}
		change(&part)
		message := &a2a.Message{Parts: a2a.ContentParts{a2a.NewTextPart("which?")}}
		encoded, _ := json.Marshal(map[string]any{"policy": part})
		var object map[string]any
		_ = json.Unmarshal(encoded, &object)
		message.SetMeta(mentionableKey, object)
		return &a2a.Task{ID: "1", Status: a2a.TaskStatus{State: a2a.TaskStateAuthRequired, Message: message}}
	}
	artifact := func(parts ...*a2a.Part) a2a.SendMessageResult {
		return &a2a.Task{ID: "1", Status: a2a.TaskStatus{State: a2a.TaskStateCompleted}, Artifacts: []*a2a.Artifact{nil, {Parts: parts}}}
	}
	for name, c := range map[string]struct {
		result a2a.SendMessageResult
		want   string // code of a failed response, or the status
	}{
		"fine":               {demand(func(*policypart.Part) {}), "input_required"},
		"kind with controls": {demand(func(p *policypart.Part) { p.Kind = "a\u0000b" }), "dispatch:invalid"},
		"without a kind":     {demand(func(p *policypart.Part) { p.Kind = "" }), "input_required"},
		"without words":      {demand(func(p *policypart.Part) { p.Message = " " }), "input_required"},
		"too many parts":     {artifact(slices.Repeat([]*a2a.Part{a2a.NewTextPart("x")}, 65)...), "completed"},
		"controls in a text": {artifact(a2a.NewTextPart("a\u0000b")), "completed"},
		"file over the edge": {artifact(a2a.NewRawPart(make([]byte, normalized.MaxInlineBytes+1)), a2a.NewTextPart("x")), "completed"},
		"empty":              {artifact(), "completed"},
		"a message":          {&a2a.Message{Parts: a2a.ContentParts{a2a.NewTextPart("x")}}, "completed"},
	} {
		got, err := caller.outcome(t.Context(), &wire{}, identity.Address{Local: "b", Domain: "b.example"}, c.result)
		found := got.Outcome()
		if got.Error != nil {
			found = got.Error.Code
		}
		if err != nil || found != c.want {
			t.Errorf("%s: %s, want %s: %+v %v", name, found, c.want, got, err)
		}
	}
	if _, err := caller.outcome(t.Context(), &wire{}, identity.Address{}, artifact(nil)); !fault.Of(err).Permanent {
		t.Errorf("null part: %v", err)
	}
}

func TestTheCacheOfCardsIsBounded(t *testing.T) {
	cache := newPeerCache()
	for i := range 3 * maxPeers {
		cache.put(fmt.Sprint(i), peer{expires: time.Now().Add(time.Minute)})
	}
	if len(cache.found) > maxPeers {
		t.Errorf("%d entries", len(cache.found))
	}
	cache.put("old", peer{expires: time.Now().Add(-time.Second)})
	if _, found := cache.get("old"); found {
		t.Error("an old card is used")
	}
}
