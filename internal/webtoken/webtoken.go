// Package webtoken checks signed JSON Web Tokens: access tokens of issuers that the operator configured (RFC 9068), short
// assertions with which agents of other servers say who they are, and proofs of possession (RFC 9449). It also writes our
// own assertions. It takes nothing from a token but its claims: keys come from the configured place or from the peer's
// own origin, never from a header. It decides nothing about what a caller may do, and reads no encrypted tokens.
package webtoken

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/identity"
	"inbox/internal/admission"
	"inbox/internal/fault"
)

var checked = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_webtoken_checks_total",
	Help: "Signed tokens checked, by kind (issuer, peer, none) and outcome (valid, refused, unavailable).",
}, []string{"kind", "outcome"})

// Limits.
const (
	MaxTokenBytes  = 16 << 10
	Skew           = 30 * time.Second // between the clocks of the issuer and ours
	MaxOneTimeLife = 5 * time.Minute  // of assertions, which are good for one request
	MaxAccessLife  = 24 * time.Hour   // of access tokens
	maxNameBytes   = 512              // of sub, client_id, jti and kid
	oneTimeLife    = 2 * time.Minute  // of our own assertions
)

// Algorithms are those that are ever accepted; an issuer may be limited to some of them. HMAC and none are not among them.
func Algorithms() []string {
	return []string{"EdDSA", "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
}

// DefaultAlgorithms are accepted of an issuer for which none are named.
func DefaultAlgorithms() []string { return []string{"ES256", "EdDSA", "RS256", "PS256"} }

// Issuer is one issuer that the operator trusts to name callers.
type Issuer struct {
	Issuer    string   // value of iss, compared byte by byte
	JWKSURL   string   // where its keys are, or
	Discovery string   // where its metadata is (RFC 8414, OpenID Connect Discovery)
	Audiences []string // accepted values of aud beside those of Presented
	Algs      []string // empty = DefaultAlgorithms
	Method    string   // identity.MethodA2AOAuth (empty) or MethodA2AJWT, whose tokens are good for one request; others count as the first
	Untyped   bool     // access tokens without typ at+jwt are accepted
	Unscoped  bool     // access tokens without scope open every method
}

// Documents fetches key documents: with a size limit, without redirects, through a guarded client.
type Documents interface {
	Fetch(ctx context.Context, url string) ([]byte, error)
}

// Replays remembers what was used, durably: two callers with the same key must not both hear true.
type Replays interface {
	Once(ctx context.Context, key string, expires time.Time) (bool, error)
}

// Options configure a Verifier. Documents and Replays are required.
type Options struct {
	Issuers   []Issuer
	Documents Documents
	Replays   Replays
	Domain    string           // ours: no other server speaks for it
	AllowHTTP bool             // development: keys of domains with a port are fetched over plain http
	Now       func() time.Time // nil = time.Now
}

// Presented is what a caller shows with one request.
type Presented struct {
	Scheme    string           // of the Authorization header: Bearer or DPoP, in any case
	Token     string           // behind it
	Proofs    []string         // values of the DPoP header
	Method    string           // of the request: POST
	URL       string           // of the request as the caller sees it, without query
	Source    admission.Source // networks of the caller: what is fetched for it counts for them
	Audiences []string         // names of the agent that the request is for, any of which aud may hold
	// Peer reports whether a peer's assertion is worth fetching its key; it is asked with the address that the assertion
	// claims before anything is fetched. nil = no peers.
	Peer func(address identity.Address) bool
	// Foreign says of a configured audience that it names another agent; may be nil.
	Foreign func(audience string) bool
}

// Claims is what a valid token says.
type Claims struct {
	Issuer    string // iss
	Subject   string // sub
	ClientID  string // client_id, of access tokens
	Method    string // of the evidence
	Scopes    []string
	Unscoped  bool   // the token is not limited to scopes
	TokenID   string // jti
	KeyID     string
	ExpiresAt time.Time
	Peer      identity.Address // of an assertion; zero for tokens of configured issuers
}

// Errors. Every error of Verify is a *fault.Fault and wraps one of them, or is fault.Unavailable.
var (
	ErrToken = errors.New("invalid_token")      // RFC 6750, section 3.1
	ErrProof = errors.New("invalid_dpop_proof") // RFC 9449, section 7.1

	// ErrLater is wrapped by an Unavailable of a token whose keys cannot be had just now: its server does not answer, or too
	// much is being fetched for others.
	ErrLater = errors.New("the keys cannot be had just now")
)

func refused(public string, detail error) error {
	return fault.Wrap(fault.Unauthenticated, public, fmt.Errorf("%w: %w", ErrToken, orSilent(detail)))
}

func badProof(why string) error {
	return fault.Wrap(fault.Unauthenticated, "the DPoP proof is not valid: "+why, ErrProof)
}

var errSilent = errors.New("no detail")

func orSilent(err error) error {
	if err == nil {
		return errSilent
	}
	return err
}

// Verifier checks tokens. It is safe for concurrent use; keys of at most 1024 peers are kept.
type Verifier struct {
	options    Options
	issuers    map[string]Issuer
	configured *keySets
	peers      *keySets
	own        string
	now        func() time.Time
}

// New checks the options; it fetches nothing.
func New(options Options) (*Verifier, error) {
	if options.Documents == nil || options.Replays == nil {
		return nil, errors.New("webtoken: a verifier needs Documents and Replays")
	}

	if options.Now == nil {
		options.Now = time.Now
	}

	own, err := identity.CanonicalIssuer(options.Domain)
	if err != nil {
		return nil, err
	}

	v := &Verifier{options: options, issuers: map[string]Issuer{}, own: own, now: options.Now}
	for _, issuer := range options.Issuers {
		if len(issuer.Algs) == 0 {
			issuer.Algs = DefaultAlgorithms()
		}
		if issuer.Method == "" {
			issuer.Method = identity.MethodA2AOAuth
		}
		if err := issuer.check(); err != nil {
			return nil, err
		}
		if _, twice := v.issuers[issuer.Issuer]; twice {
			return nil, fmt.Errorf("webtoken: issuer %s is a duplicate", issuer.Issuer)
		}
		v.issuers[issuer.Issuer] = issuer
	}

	v.configured = newKeySets(options.Now, v.fetchConfigured, len(v.issuers)+1)
	v.peers = newKeySets(options.Now, v.fetchPeer, maxPeers)
	return v, nil
}

func (i Issuer) check() error {
	switch {
	case i.Issuer == "":
		return errors.New("webtoken: an issuer has no name")
	case (i.JWKSURL == "") == (i.Discovery == ""):
		return fmt.Errorf("webtoken: issuer %s needs either JWKSURL or Discovery", i.Issuer)
	}

	for _, alg := range i.Algs {
		if !slices.Contains(Algorithms(), alg) {
			return fmt.Errorf("webtoken: issuer %s: algorithm %q is not accepted", i.Issuer, alg)
		}
	}
	return nil
}

// oneTime reports whether the issuer's tokens are good for one request.
func (i Issuer) oneTime() bool { return i.Method == identity.MethodA2AJWT }

// Signed reports whether a text has the form of a signed token: three pieces with dots between.
func Signed(token string) bool {
	dots := 0
	for i := range len(token) {
		if token[i] == '.' {
			dots++
		}
	}
	return dots == 2 && len(token) <= MaxTokenBytes
}

// Verify checks a token with all that was shown beside it. Faults: Unauthenticated with ErrToken or ErrProof, Unavailable
// when keys or the memory of used tokens cannot be had.
func (v *Verifier) Verify(ctx context.Context, shown Presented) (Claims, error) {
	kind, claims, err := v.verify(ctx, shown)
	outcome := "valid"
	switch {
	case fault.Is(err, fault.Unauthenticated):
		outcome = "refused"
	case err != nil:
		outcome = "unavailable"
	}

	checked.WithLabelValues(kind, outcome).Inc()
	return claims, err
}

func (v *Verifier) verify(ctx context.Context, shown Presented) (kind string, claims Claims, err error) {
	t, err := read(shown.Token)
	if err != nil {
		return "none", Claims{}, refused("the token is not a signed JSON Web Token that can be read", err)
	}
	if issuer, known := v.issuers[t.claims.Issuer]; known {
		claims, err = v.fromIssuer(ctx, shown, t, issuer)
		return "issuer", claims, err
	}

	claims, err = v.fromPeer(ctx, shown, t)
	return "peer", claims, err
}

// times are the checks that all tokens share; most is the longest life.
func (v *Verifier) times(c *claims, most time.Duration) error {
	now := v.now()
	switch {
	case c.ExpiresAt.IsZero():
		return errors.New("exp is missing")
	case !now.Before(c.ExpiresAt.Add(Skew)):
		return errors.New("the token has expired")
	case c.NotBefore.After(now.Add(Skew)), c.IssuedAt.After(now.Add(Skew)):
		return errors.New("the token begins in the future")
	case c.IssuedAt.IsZero():
		return errors.New("iat is missing")
	case c.ExpiresAt.Sub(c.IssuedAt) > most:
		return fmt.Errorf("the token lasts longer than %s", most)
	}

	return nil
}

// once remembers a token that is good for one request.
func (v *Verifier) once(ctx context.Context, kind, issuer, id string, until time.Time) (bool, error) {
	first, err := v.options.Replays.Once(ctx, kind+"\x00"+issuer+"\x00"+id, until)
	if err != nil {
		return false, fault.Wrap(fault.Unavailable, "the token cannot be checked right now", fmt.Errorf("remember token: %w", err))
	}
	return first, nil
}
