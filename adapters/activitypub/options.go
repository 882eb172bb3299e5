package activitypub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/httpserver"
	"inbox/internal/safehttp"
	"inbox/policypart"
)

// Amender changes accepted messages as their senders do; see the pipeline. Errors are faults.
type Amender interface {
	Revise(ctx context.Context, revision exchange.Revision) error
	Remove(ctx context.Context, agent, messageID, principal string) error
	CancelOpen(ctx context.Context, agent, principal, reason string) error
	// EndLinks ends what makes the principal one person with others, for all agents.
	EndLinks(ctx context.Context, principal, reason string) error
}

// Timeline keeps what others do about the agents' answers, for the operator.
type Timeline interface {
	React(ctx context.Context, turnID string, reaction exchange.Reaction, gone bool) error
}

// Records keeps decisions and reports for the operator.
type Records interface {
	Audit(ctx context.Context, record exchange.AuditRecord) error
}

// Replies reads answers that were given: one with its native id, that of a turn (both fault.NotFound), or those of an agent
// that everyone may read, newest first, before the reply with the given id; empty = from the newest.
type Replies interface {
	Answer(ctx context.Context, turnID string) (exchange.Reply, error)
	Reply(ctx context.Context, replyID string) (reply exchange.Reply, nativeID string, err error)
	Replies(ctx context.Context, agent, before string, limit int) ([]exchange.Reply, error)
	CountReplies(ctx context.Context, agent string) (int64, error)
}

// State keeps the adapter's own documents, shared by all nodes: keys, followers, known actors.
type State interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
	PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) (current []byte, inserted bool, err error)
	Swap(ctx context.Context, namespace, key string, old, value []byte, expires time.Time) (swapped bool, err error)
	Delete(ctx context.Context, namespace, key string) error
	// Several returns those documents of the keys, at most 100, that are there.
	Several(ctx context.Context, namespace string, keys []string) (values map[string][]byte, err error)
	Count(ctx context.Context, namespace string) (int64, error)
	// List returns documents with keys after the given one, in byte order of their keys.
	List(ctx context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error)
}

// Outbox runs Perform(payload) later, durably, with retries, one job of a partition at a time.
type Outbox interface {
	SendLater(ctx context.Context, partition, payload string) error
}

// Later is work that Perform asks for: it is stored in the transaction that ends its own job.
type Later struct {
	Partition, Payload string
	Bulk               bool // to many: it waits behind what single people wait for
}

// Client sends HTTP requests under the outgoing address policy (internal/safehttp).
type Client interface {
	Do(request *http.Request) (*http.Response, error)
	Get(ctx context.Context, address string, options safehttp.GetOptions) (*http.Response, error)
	CheckURL(u *url.URL) error
}

// Modes of federation.
const (
	ModeOpen      = "open"      // everyone who proves who they are, except refused hosts
	ModeAllowlist = "allowlist" // only hosts that HostAllowed names
)

// What a mention without any text gets.
const (
	EmptyIgnore = "ignore"
	EmptyGreet  = "greet" // the agent gets its own address as the text
)

// Options are what the adapter needs. Fields without "optional" are required.
type Options struct {
	Domain    string // of the agents' addresses; may carry a port when AllowPrivate is on
	PublicURL string // where HTTP is reached, without a path
	Version   string // of this server, for the User-Agent
	About     string // optional: page for administrators of other servers, for the User-Agent and the profiles; the front page

	Receiver  exchange.Receiver
	Amender   Amender
	Timeline  Timeline
	Records   Records
	Directory exchange.Directory
	Threads   exchange.Threads
	Replies   Replies
	State     State
	Outbox    Outbox
	Client    Client

	AllowPrivate bool                   // federation.allow_private: plain http and any host in ids
	Mode         string                 // optional: ModeOpen
	HostAllowed  func(host string) bool // optional: asked before any fetch and for every sender
	// NamesLocal reports whether the rules about who may talk to an agent may name an address with this local part; optional.
	// The first message of such a sender waits until WebFinger said whose the address is.
	NamesLocal    func(agent, local string) bool
	ActorAllowed  func(iri string) bool              // optional: asked before any fetch for every actor who claims to act
	Follows       func(agent string) string          // optional: FollowAccept
	Stopped       func(agent, principal string) bool // optional: whether the principal told the agent to stop; no
	FollowersOnly func(agent string) bool            // optional: whether the agent answers its followers alone; no
	Fields        []Field                            // optional: who operates the server, on every profile
	AnswersAgents func(agent string) bool            // optional: whether the agent answers automated actors; no
	Likes         func(agent string) bool            // optional: whether the agent acknowledges a note with a Like instead of a note; no
	Blobs         exchange.Files                     // optional: stored bytes of files; without it such files are named only
	EmptyMention  string                             // optional: EmptyIgnore
	PublicReplies bool                               // optional: answer public questions publicly instead of unlisted
	PostLength    int                                // optional: characters after which an answer becomes a chain of posts; 4000
	Profile       func(agent string) Profile         // optional: what the actor of an agent shows beside its name

	FollowersGetReplies bool // address open answers to the agent's followers too, as people's own servers do
	AuthorizedFetch     bool // answer signed requests only, except for the server's own actor

	Policy exchange.Policy // of deliveries and conversations

	Recent Recent // optional: where to tell of a changed actor, beside followers

	// Alive is told of hosts that sent something with a good signature. Optional.
	Alive func(ctx context.Context, host string)

	// Present makes a demand ready for its reader: it checks the address once more and puts the secret into it, so it
	// is called for the asker alone and never for a public document. Optional: policypart.Part.Confine to PublicURL.
	Present func(policypart.Part) policypart.Part

	// UnsignedHost accepts draft-cavage signatures that do not cover the host. A request that was captured on its way to
	// another server can then be replayed here if its Host header is changed.
	UnsignedHost  bool
	MaxRefusals   int                              // optional: refused requests of one network address in five minutes, after which it is put off; 300; negative = no limit
	ClientAddress func(r *http.Request) netip.Addr // optional: httpserver.ClientIP

	MaxAttempts int              // optional: of a delivery whose key the peer refuses; 4
	Now         func() time.Time // optional: time.Now
}

func (o *Options) check() error {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Mode == "" {
		o.Mode = ModeOpen
	}

	o.MaxAttempts, o.PostLength = cmp.Or(o.MaxAttempts, 4), cmp.Or(o.PostLength, notetext.DefaultLength)
	o.MaxRefusals = cmp.Or(o.MaxRefusals, 300)
	if o.ClientAddress == nil {
		o.ClientAddress = httpserver.ClientIP
	}

	if o.Mode != ModeOpen && o.Mode != ModeAllowlist {
		return fmt.Errorf("mode %q: want %q or %q", o.Mode, ModeOpen, ModeAllowlist)
	}
	if o.Amender == nil || o.Timeline == nil || o.Records == nil {
		return errors.New("a required dependency is missing")
	}
	if o.Receiver == nil || o.Directory == nil || o.Threads == nil || o.Replies == nil || o.State == nil || o.Outbox == nil || o.Client == nil {
		return errors.New("a required dependency is missing")
	}

	domain, err := identity.ParseDomain(o.Domain)
	if err != nil {
		return fmt.Errorf("domain: %w", err)
	}

	o.Domain = domain
	return o.checkPublicURL()
}

func (o *Options) checkPublicURL() error {
	parsed, err := url.Parse(o.PublicURL)
	if err != nil {
		return fmt.Errorf("public URL: %w", err)
	}
	if _, ok := document.Origin(o.PublicURL); !ok || strings.Trim(parsed.Path, "/") != "" {
		return fmt.Errorf("public URL %q: want a scheme and a host without a path", o.PublicURL)
	}
	if parsed.Scheme != "https" && !o.AllowPrivate {
		return fmt.Errorf("public URL %q: want https", o.PublicURL)
	}

	if o.Present == nil {
		o.Present = func(part policypart.Part) policypart.Part { return part.Confine(parsed) }
	}
	return nil
}
