package activitypub

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// aliceKey and malloryKey are made once for all tests.
var (
	aliceKey    = sync.OnceValue(newTestKey)
	malloryKey  = sync.OnceValue(newTestKey)
	ownTestKey  = sync.OnceValue(func() []byte { return storedTestKey(newTestKey()) })
	ownProofKey = sync.OnceValue(func() []byte { return storedTestKey(testSeedKey(7)) })
)

// testSeedKey is the same Ed25519 key in every run.
func testSeedKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func storedTestKey(private any) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		panic(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	value, _ := json.Marshal(storedKey{PrivateKeyPEM: string(text)})
	return value
}

func newTestKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
}

func publicPEM(key *rsa.PrivateKey) string {
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// engine records what the adapter hands on and answers what the test wants.
type engine struct {
	exchangetest.Receiver

	mu      sync.Mutex
	entries map[string]exchange.ThreadEntry
	replies map[string]exchange.Reply
	jobs    []string

	removed   []string // agent, id and principal of messages that were taken back
	cancelled []string // agent and principal
	unlinked  []string // principals
	reactions []string
	unkept    error // of the next reaction
	audit     []exchange.AuditRecord
}

// Revise changes the copies that were taken, as the pipeline does.
func (e *engine) Revise(_ context.Context, revision exchange.Revision) error {
	var found, changed bool
	e.Change(func(in *exchange.Inbound) {
		message := &in.Message
		if changed || message.ID != revision.MessageID || message.Sender.Principal() != revision.Principal {
			return
		}
		found = true
		parts, route := revision.Rewrite(message.Recipient, in.Route)
		if changed = e.Documents.Claim(revision.Claim) != nil; !changed && len(parts) > 0 {
			message.Parts, in.Route = parts, route
		}
	})
	if changed {
		return fault.New(fault.Conflict, "changed")
	}
	if !found {
		return fault.New(fault.NotFound, "no such message")
	}
	return nil
}

func (e *engine) Remove(_ context.Context, agent, id, principal string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removed = append(e.removed, agent+" "+id+" "+principal)
	return nil
}

func (e *engine) CancelOpen(_ context.Context, agent, principal, _ string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancelled = append(e.cancelled, agent+" "+principal)
	return nil
}

func (e *engine) EndLinks(_ context.Context, principal, _ string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unlinked = append(e.unlinked, principal)
	return nil
}

func (e *engine) React(_ context.Context, turnID string, reaction exchange.Reaction, gone bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.unkept; err != nil {
		e.unkept = nil
		return err
	}
	e.reactions = append(e.reactions, fmt.Sprintf("%s %s %s %s %v", turnID, reaction.Type, reaction.Actor, reaction.Content, gone))
	return nil
}

func (e *engine) Audit(_ context.Context, record exchange.AuditRecord) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.audit = append(e.audit, record)
	return nil
}

func (e *engine) ContinuedMessage(_ context.Context, agent, _, principal string, ids []string) (exchange.ThreadEntry, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		entry, found := e.entries[agent+" "+id]
		kept, err := readRoute(entry.Route)
		if found && err == nil && (isOpen(kept.Visibility) || strings.HasSuffix(principal, " "+kept.Actor)) {
			return entry, true, nil
		}
	}
	return exchange.ThreadEntry{}, false, nil
}

func (e *engine) RepliedMessage(context.Context, string, string, string) (exchange.ThreadEntry, bool, error) {
	return exchange.ThreadEntry{}, false, nil
}

func (e *engine) SentMessage(context.Context, string, string, string) (exchange.ThreadEntry, bool, error) {
	return exchange.ThreadEntry{}, false, nil
}

func (e *engine) Reply(_ context.Context, id string) (exchange.Reply, string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reply, found := e.replies[id]
	if !found {
		return reply, "", fault.New(fault.NotFound, "no such reply")
	}
	return reply, "", nil
}

func (e *engine) Answer(_ context.Context, turnID string) (exchange.Reply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, reply := range e.replies {
		if reply.TurnID == turnID && reply.Notice == 0 {
			return reply, nil
		}
	}
	return exchange.Reply{}, fault.New(fault.NotFound, "no such reply")
}

func (e *engine) Replies(_ context.Context, agent, before string, limit int) ([]exchange.Reply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []exchange.Reply
	for _, reply := range e.replies {
		if reply.Agent == agent && reply.DeletedAt.IsZero() && (before == "" || reply.ID < before) {
			found = append(found, reply)
		}
	}
	slices.SortFunc(found, func(a, b exchange.Reply) int { return strings.Compare(b.ID, a.ID) })
	return found[:min(len(found), limit)], nil
}

func (e *engine) CountReplies(ctx context.Context, agent string) (int64, error) {
	found, err := e.Replies(ctx, agent, "", 1<<20)
	return int64(len(found)), err
}

func (e *engine) SendLater(_ context.Context, _, payload string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs = append(e.jobs, payload)
	return nil
}

// takeJobs empties the queue of later work.
func (e *engine) takeJobs(kind string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var taken, left []string
	for _, payload := range e.jobs {
		if strings.Contains(payload, `"kind":"`+kind+`"`) {
			taken = append(taken, payload)
		} else {
			left = append(left, payload)
		}
	}
	e.jobs = left
	return taken
}

// rig is our server and one other server, both on loopback.
type rig struct {
	t       testing.TB
	adapter *Adapter
	base    string
	domain  string
	engine  *engine
	state   *exchangetest.Documents
	remote  *remoteServer
	clock   *atomic.Int64 // nanoseconds that the adapter's clock is ahead
	client  *http.Client  // of the test: its connections end with the rig, so that no later server on the same port gets one
}

func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, base: "http://" + listener.Addr().String(), domain: listener.Addr().String(), state: exchangetest.NewDocuments(),
		engine: &engine{entries: map[string]exchange.ThreadEntry{}, replies: map[string]exchange.Reply{}},
		clock:  new(atomic.Int64), client: &http.Client{Transport: &http.Transport{}, Timeout: 2 * await.Patience},
	}
	r.engine.Documents, r.engine.Limits = r.state, normalized.DefaultLimits()
	r.engine.Limits.AllowHTTP = true
	for _, owner := range []string{"", "echo", "other"} {
		_ = r.state.Put(t.Context(), keyNamespace, rsaPrefix+owner, ownTestKey(), time.Time{})
		_ = r.state.Put(t.Context(), keyNamespace, ed25519Prefix+owner, ownProofKey(), time.Time{})
	}
	r.remote = newRemoteServer(t)
	client := safehttp.New(safehttp.Options{AllowPrivate: true, Timeout: 30 * time.Second})
	options := Options{
		Domain: r.domain, PublicURL: r.base, Version: "1.2.3", Receiver: r.engine, Amender: r.engine, Timeline: r.engine, Records: r.engine, Threads: r.engine, Replies: r.engine,
		Outbox: r.engine, State: r.state, Client: client, AllowPrivate: true,
		Directory: exchangetest.Agents{r.profile("echo"), r.profile("other")},
		Now:       func() time.Time { return time.Now().Add(time.Duration(r.clock.Load())) },
	}
	for _, apply := range change {
		apply(&options)
	}
	if r.adapter, err = New(options); err != nil {
		t.Fatal(err)
	}
	router, err := httpserver.New(httpserver.Options{Routes: r.adapter.Routes(), WithoutHealth: true})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: router.Handler(), ReadHeaderTimeout: 30 * time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		client.Close()
		_ = server.Close()
		await.Receive(t, done, "the end of the server")
	})
	return r
}

func (r *rig) profile(name string) exchange.AgentProfile {
	return exchange.AgentProfile{
		Name: name, Address: "@" + name + "@" + r.domain, DisplayName: "Echo <b>bot</b>", Summary: "Says it again.\nAlways.",
		CreatedAt: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
	}
}

// delivery is one incoming request under construction; tests bend one thing at a time.
type delivery struct {
	method, path string
	body         []byte
	header       http.Header
	host         string
	keyID        string
	key          *rsa.PrivateKey
	covered      []string
	algorithm    string
	parameters   string // further parameters of the Signature header
	target       string // what is signed as request target; empty = path
	created      int64
}

func (r *rig) deliver(activity any) *delivery {
	body, isText := activity.(string)
	if !isText {
		encoded, err := json.Marshal(activity)
		if err != nil {
			r.t.Fatal(err)
		}
		body = string(encoded)
	}
	return &delivery{
		method: http.MethodPost, path: "/inbox", body: []byte(body), host: r.domain,
		header: http.Header{"Content-Type": {activityMediaType}, "Date": {r.adapter.now().UTC().Format(http.TimeFormat)}},
		keyID:  r.remote.actor("alice") + "#main-key", key: aliceKey(), algorithm: "rsa-sha256",
		covered: []string{"(request-target)", "host", "date", "digest"},
	}
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return "SHA-256=" + base64.StdEncoding.EncodeToString(sum[:])
}

// sign is written from the draft, apart from the code under test.
func (d *delivery) sign() *delivery {
	if d.header.Get("Digest") == "" && d.method == http.MethodPost {
		d.header.Set("Digest", digestOf(d.body))
	}
	target := d.target
	if target == "" {
		target = d.path
	}
	var lines []string
	for _, name := range d.covered {
		switch name {
		case "(request-target)":
			lines = append(lines, name+": "+strings.ToLower(d.method)+" "+target)
		case "host":
			lines = append(lines, "host: "+d.host)
		case "(created)":
			lines = append(lines, fmt.Sprintf("(created): %d", d.created))
		default:
			lines = append(lines, name+": "+d.header.Get(name))
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	signature, err := rsa.SignPKCS1v15(rand.Reader, d.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	d.header.Set("Signature", fmt.Sprintf(`keyId="%s",algorithm="%s",headers="%s",%ssignature="%s"`, d.keyID, d.algorithm,
		strings.Join(d.covered, " "), d.parameters, base64.StdEncoding.EncodeToString(signature)))
	return d
}

// send puts the request on a real connection and returns status and text.
func (r *rig) send(d *delivery) (status int, text string, header http.Header) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), d.method, r.base, bytes.NewReader(d.body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.URL.Opaque = d.path // the path as it stands, undecoded
	request.Header, request.Host = d.header, d.host
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(body)), response.Header
}

func (r *rig) want(d *delivery, status int, contains string) {
	r.t.Helper()
	got, text, _ := r.send(d)
	if got != status || !strings.Contains(text, contains) {
		r.t.Errorf("status %d %q, want %d %q", got, text, status, contains)
	}
}

// fetch reads one of our documents.
func (r *rig) fetch(path, accept string) (status int, header http.Header, body string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.base+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := r.client.Transport.RoundTrip(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, string(content)
}

// mentionNote is the Create that most tests start from.
func (r *rig) mentionNote(id, content string) map[string]any {
	alice, echo := r.remote.actor("alice"), r.base+"/agents/echo"
	return map[string]any{
		"@context": []any{document.ActivityStreams, map[string]any{"toot": "http://joinmastodon.org/ns#"}},
		"id":       r.remote.base + "/notes/" + id + "/activity", "type": "Create", "actor": alice,
		"to": []string{document.Public}, "cc": []string{echo},
		"object": map[string]any{
			"id": r.remote.base + "/notes/" + id, "type": "Note", "attributedTo": alice, "content": content,
			"to": []string{document.Public}, "cc": []string{echo},
			"tag": []any{map[string]any{"type": "Mention", "href": echo, "name": "@echo"}},
		},
	}
}

// remoteServer is a small server of the fediverse: actors, WebFinger and an inbox.
type remoteServer struct {
	t           testing.TB
	base        string
	connections atomic.Int64
	requests    atomic.Int64

	mu       sync.Mutex
	pages    map[string]http.HandlerFunc
	fetched  map[string]int
	arrived  []arrival
	posted   chan struct{} // after an arrival; never blocks
	answers  []func(http.ResponseWriter)
	requires func(*http.Request) bool
}

// arrival is a request to the inbox.
type arrival struct {
	header http.Header
	host   string
	path   string
	body   []byte
}

func newRemoteServer(t testing.TB) *remoteServer {
	s := &remoteServer{t: t, pages: map[string]http.HandlerFunc{}, fetched: map[string]int{}, posted: make(chan struct{}, 1)}
	server := httptest.NewUnstartedServer(s)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	s.base = server.URL
	s.addActor("alice", aliceKey(), nil)
	return s
}

func (s *remoteServer) actor(name string) string { return s.base + "/users/" + name }

func (s *remoteServer) actorDocument(name string, key *rsa.PrivateKey) map[string]any {
	id := s.actor(name)
	return map[string]any{
		"@context": []string{document.ActivityStreams, "https://w3id.org/security/v1"}, "id": id, "type": "Person",
		"preferredUsername": name, "name": strings.ToUpper(name[:1]) + name[1:], "url": s.base + "/@" + name,
		"inbox": id + "/inbox", "followers": id + "/followers", "endpoints": map[string]any{"sharedInbox": s.base + "/inbox"},
		"icon":      map[string]any{"type": "Image", "mediaType": "image/png", "url": s.base + "/a.png"},
		"publicKey": map[string]any{"id": id + "#main-key", "owner": id, "publicKeyPem": publicPEM(key)},
		"assertionMethod": []any{map[string]any{
			"id": id + "#ed25519-key", "type": "Multikey", "controller": id,
			"publicKeyMultibase": signature.Multikey(aliceProofKey.Public().(ed25519.PublicKey)),
		}},
	}
}

func (s *remoteServer) addActor(name string, key *rsa.PrivateKey, change func(map[string]any)) {
	document := s.actorDocument(name, key)
	if change != nil {
		change(document)
	}
	s.serve("/users/"+name, document)
}

func (s *remoteServer) serve(path string, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		s.t.Fatal(err)
	}
	s.handle(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", activityMediaType)
		_, _ = w.Write(body)
	})
}

func (s *remoteServer) handle(path string, handler http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path] = handler
}

func (s *remoteServer) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetched[path]
}

// answer sets what the inbox says to the next requests, in order.
func (s *remoteServer) answer(handlers ...func(http.ResponseWriter)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = handlers
}

func status(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(code) }
}

func (s *remoteServer) arrivals() []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.arrived)
}

func (s *remoteServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	if r.Method == http.MethodPost {
		s.takePost(w, r)
		return
	}
	s.mu.Lock()
	s.fetched[r.URL.Path]++
	page := s.pages[r.URL.Path]
	requires := s.requires
	s.mu.Unlock()
	switch {
	case requires != nil && !requires(r):
		w.WriteHeader(http.StatusUnauthorized)
	case page != nil:
		page(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *remoteServer) takePost(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.arrived = append(s.arrived, arrival{r.Header.Clone(), r.Host, r.URL.Path, body})
	var handler func(http.ResponseWriter)
	if len(s.answers) > 0 {
		handler, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	select {
	case s.posted <- struct{}{}:
	default:
	}
	if handler == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	handler(w)
}

// SendActivity performs a stored job for the first time, where a test has no queue.
func (a *Adapter) SendActivity(ctx context.Context, payload string) error {
	_, err := a.Perform(ctx, payload, 1)
	return err
}

// forgetActors makes the memory of other servers' actors that of a new process with the same store.
func (r *rig) forgetActors() {
	a, fresh := r.adapter, newActors(r.adapter.site, r.adapter.fetcher)
	a.actors, a.verifier.actors, a.inbox.actors, a.notes.actors, a.moves.actors = fresh, fresh, fresh, fresh, fresh
	a.transport.actors, a.outbox.actors = fresh, fresh
}
