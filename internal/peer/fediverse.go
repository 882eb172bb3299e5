package peer

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	activityStreams = "https://www.w3.org/ns/activitystreams"
	publicAddress   = activityStreams + "#Public"
	activityJSON    = "application/activity+json"
)

// FediverseOptions configure a Fediverse. The zero value is alice on a free port of 127.0.0.1.
type FediverseOptions struct {
	Listen string // host:port; empty = 127.0.0.1:0
	User   string // empty = alice
	Name   string // display name; empty = Alice
	Host   string // under which others reach it by https, where a proxy in front has the certificate; empty = http and the address of the listener

	Client *http.Client // by which the server under test is reached; nil = as its addresses say

	// Reply makes the peer answer verified mentions with this text, so that two peers can talk to each other.
	Reply func(text string) string

	GoToSocial bool   // read only by whom it knows, as GoToSocial does (see habits)
	Scheme     string // the signature scheme of activities that it takes and sends: SchemeDraft (empty too) or SchemeRFC9421
}

// Fediverse is a server with one account that behaves as Mastodon does where it matters to an agent: it finds
// accounts by WebFinger and checks the loop back, signs what it sends with an RSA key (draft-cavage) and refuses
// activities whose signature, digest, date or owner is wrong.
type Fediverse struct {
	user, name string
	base       string // http://127.0.0.1:port
	host       string // 127.0.0.1:port
	listen     string // 127.0.0.1:port
	key        requestKey
	reply      func(text string) string
	client     *http.Client
	scheme     string
	gotosocial bool
	server     *http.Server
	serving    sync.WaitGroup
	proven     atomic.Int64 // GETs by their signature
	unproven   atomic.Int64
	waiting    *waiting
	life       context.Context // of replies under way
	end        context.CancelFunc
	work       sync.WaitGroup
	mu         sync.Mutex
	objects    map[string]object // by path: what others may fetch
	files      map[string]File   // by path
}

// NewFediverse starts the server. Close stops it.
func NewFediverse(options FediverseOptions) (*Fediverse, error) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("make actor key: %w", err)
	}

	listener, err := listen(options.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the fediverse peer: %w", err)
	}

	f := &Fediverse{
		user: orDefault(options.User, "alice"), name: orDefault(options.Name, "Alice"), reply: options.Reply,
		host: listener.Addr().String(), base: "http://" + listener.Addr().String(),
		client: newHTTPClient(), waiting: newWaiting(), objects: make(map[string]object), files: make(map[string]File),
		scheme: orDefault(options.Scheme, SchemeDraft), gotosocial: options.GoToSocial,
	}

	if options.Client != nil {
		f.client = options.Client
	}
	if options.Host != "" {
		f.host, f.base = options.Host, "https://"+options.Host
	}
	f.listen = listener.Addr().String()
	f.life, f.end = context.WithCancel(context.Background())
	f.key = requestKey{id: f.actorID() + "#main-key", private: private}
	if f.gotosocial {
		f.key.id = f.base + f.keyPath()
	}

	f.serve(listener)
	return f, nil
}

func (f *Fediverse) serve(listener net.Listener) {
	handler := f.handler()
	if f.gotosocial {
		handler = f.habits(handler)
	}
	f.server = &http.Server{Handler: handler, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout}
	server := f.server
	f.serving.Go(func() { _ = server.Serve(listener) }) // ends with Close or Down
}

func orDefault(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

// Close stops the server and waits for what it started.
func (f *Fediverse) Close() error {
	f.end()
	f.client.CloseIdleConnections()
	err := stopServer(f.server)
	f.serving.Wait()
	f.work.Wait()
	f.client.CloseIdleConnections()
	return err
}

// Listen returns host:port of the listener, for a proxy.
func (f *Fediverse) Listen() string { return f.listen }

// Address returns @user@host of the account.
func (f *Fediverse) Address() string { return "@" + f.user + "@" + f.host }

// BaseURL returns where the server is reached.
func (f *Fediverse) BaseURL() string { return f.base }

func (f *Fediverse) actorID() string { return f.base + "/users/" + f.user }

// handler offers what a Mastodon server offers to a peer that wants to know and to reach an account.
func (f *Fediverse) handler() http.Handler {
	mux := http.NewServeMux()
	user := "/users/" + f.user
	mux.HandleFunc("GET /.well-known/webfinger", f.webFinger)
	mux.HandleFunc("GET "+user, func(w http.ResponseWriter, _ *http.Request) { writeActivity(w, f.actor()) })

	for _, name := range []string{"followers", "following", "outbox"} {
		mux.HandleFunc("GET "+user+"/"+name, func(w http.ResponseWriter, r *http.Request) {
			writeActivity(w, object{"@context": activityStreams, "id": f.base + r.URL.Path, "type": "OrderedCollection", "totalItems": 0})
		})
	}

	mux.HandleFunc("GET "+user+"/statuses/", f.serveObject)
	mux.HandleFunc("GET /files/", f.serveFile)
	mux.HandleFunc("POST "+user+"/inbox", f.inbox)
	mux.HandleFunc("POST /inbox", f.inbox)
	return mux
}

func (f *Fediverse) webFinger(w http.ResponseWriter, r *http.Request) {
	account := "acct:" + f.user + "@" + f.host
	if resource := r.FormValue("resource"); resource != account && resource != f.actorID() {
		http.Error(w, "no such account", http.StatusNotFound)
		return
	}

	w.Header().Set("Content-Type", "application/jrd+json")
	_ = json.NewEncoder(w).Encode(webFingerDocument{
		Subject: account,
		Aliases: []string{f.actorID()},
		Links:   []webFingerLink{{Rel: "self", Type: activityJSON, Href: f.actorID()}},
	})
}

func (f *Fediverse) actor() object {
	der, err := x509.MarshalPKIXPublicKey(&f.key.private.PublicKey)
	if err != nil {
		panic(err) // impossible for an RSA key that was made here
	}

	id := f.actorID()
	return object{
		"@context": []string{activityStreams, "https://w3id.org/security/v1"},
		"id":       id, "type": "Person", "preferredUsername": f.user, "name": f.name, "url": f.base + "/@" + f.user,
		"inbox": id + "/inbox", "outbox": id + "/outbox", "followers": id + "/followers", "following": id + "/following",
		"endpoints":                 object{"sharedInbox": f.base + "/inbox"},
		"manuallyApprovesFollowers": false, "published": time.Now().UTC().Format(time.RFC3339),
		"publicKey": object{
			"id": f.key.id, "owner": id,
			"publicKeyPem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		},
	}
}

func (f *Fediverse) serveObject(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	found, exists := f.objects[r.URL.Path]
	f.mu.Unlock()
	if !exists {
		http.NotFound(w, r)
		return
	}
	writeActivity(w, found)
}

func writeActivity(w http.ResponseWriter, document object) {
	w.Header().Set("Content-Type", activityJSON+"; charset=utf-8")
	_ = json.NewEncoder(w).Encode(document)
}
