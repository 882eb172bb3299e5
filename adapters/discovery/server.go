// Package discovery answers the well-known questions: who is behind an address (WebFinger, RFC 7033), where to ask
// (host-meta, RFC 6415), what this server is (NodeInfo, FEP-f1d5) and with which keys it vouches. The links themselves are
// contributed by the protocol adapters; this room knows none of their documents and trusts no keys.
package discovery

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/httpserver"
)

// result: found, malformed, unknown, gone
var lookups = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_webfinger_requests_total", Help: "WebFinger requests by result.",
}, []string{"result"})

// Contributor returns the links of a channel for an agent's address.
type Contributor func(agent exchange.AgentProfile) []exchange.Link

// Subject is an address that is no agent but can be looked up, such as the server's own ActivityPub actor.
type Subject struct {
	Address string // @user@domain
	Links   []exchange.Link
}

// Options are what discovery needs. Fields without "optional" are required.
type Options struct {
	Domain    string // of the agents' addresses, may carry a port
	PublicURL string // where HTTP is reached, without a path
	Version   string // of this server
	Directory exchange.Directory

	Contributors []Contributor          // optional: in the order of their links
	Subjects     []Subject              // optional
	Removed      func(name string) bool // optional: whether an agent of the name existed and was removed (410)
	Usage        Usage                  // optional: without it NodeInfo counts agents only
	Description  string                 // optional: of this server, for NodeInfo
	Contact      string                 // optional: the operator's address, for NodeInfo
	About        string                 // optional: page for administrators of other servers, for NodeInfo
	Repository   string                 // optional: where the source is, for NodeInfo 2.1
	Homepage     string                 // optional: of the software, for NodeInfo 2.1
	Keys         KeysFunc               // optional: the keys that we vouch with; without it no key documents are served
	Callbacks    []string               // optional: addresses for the Connector Card at which we take messages
	Now          func() time.Time       // optional: time.Now
	Logger       *slog.Logger           // optional: slog.Default
}

// Server is the discovery room. It is safe for concurrent use.
type Server struct {
	options Options
	issuer  string          // of what we sign
	base    string          // public URL without a slash at the end
	domains map[string]bool // whose users we answer for

	mu     sync.Mutex
	counts Counts
	until  time.Time
}

// New checks the options and makes the server.
func New(options Options) (*Server, error) {
	if options.Directory == nil {
		return nil, errors.New("discovery: a directory of agents is missing")
	}

	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}

	domain, err := identity.ParseDomain(options.Domain)
	if err != nil {
		return nil, fmt.Errorf("discovery: domain: %w", err)
	}

	public, err := url.Parse(options.PublicURL)
	if err != nil || public.Host == "" {
		return nil, fmt.Errorf("discovery: public URL %q: want a scheme and a host", options.PublicURL)
	}

	domains := map[string]bool{domain: true}

	// Where the two differ, peers ask the host of the actor for the user first and read the domain from the subject.
	if host, err := identity.ParseDomain(public.Host); err == nil {
		domains[host] = true
	}

	issuer, err := identity.CanonicalIssuer(domain)
	if err != nil {
		return nil, fmt.Errorf("discovery: domain: %w", err)
	}

	options.Domain = domain
	return &Server{options: options, issuer: issuer, base: strings.TrimRight(options.PublicURL, "/"), domains: domains}, nil
}

// Routes are the well-known paths and the NodeInfo documents.
func (s *Server) Routes() []httpserver.Route {
	get := func(pattern string, handler http.HandlerFunc) httpserver.Route {
		return httpserver.Route{Method: http.MethodGet, Pattern: pattern, Handler: open(handler)}
	}
	return append(s.keyRoutes(), []httpserver.Route{
		get("/.well-known/webfinger", s.webfinger),
		get("/.well-known/host-meta", s.hostMeta),
		get("/.well-known/nodeinfo", s.nodeInfoIndex),
		get("/nodeinfo/2.0", s.nodeInfo20),
		get("/nodeinfo/2.1", s.nodeInfo21),
	}...)
}

// open lets scripts of any web page read the answer (RFC 7033, section 5).
func open(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next(w, r)
	}
}

func write(w http.ResponseWriter, mediaType string, seconds int, body []byte) {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", seconds))
	_, _ = w.Write(body)
}

func refuse(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, reason, status)
}
