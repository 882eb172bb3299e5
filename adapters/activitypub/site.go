package activitypub

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// site is what every part of the adapter knows: the options, the server's own addresses, and with whom it deals.
type site struct {
	options Options
	base    string          // public origin, without a slash at the end
	host    string          // host[:port] of base
	hosts   map[string]bool // Host headers that mean this server
}

// isRemote reports whether an IRI may name something on another server: https (http under AllowPrivate), a host
// that is not ours.
func (s *site) isRemote(iri string) bool {
	text, ok := document.Origin(iri)
	return ok && (s.options.AllowPrivate || strings.HasPrefix(text, "https://")) && !s.isOurs(text)
}

// isOurs reports whether an IRI is on the host where our actors live.
func (s *site) isOurs(iri string) bool { return document.HostOf(iri) == s.host }

// meansUs keeps a request that was captured on its way to another server from being replayed here.
func (s *site) meansUs(host string) bool {
	scheme, _, _ := strings.Cut(s.base, "://")
	canonical, ok := document.CanonicalHost(host, scheme)
	return ok && s.hosts[canonical]
}

// admits reports whether the operator lets us deal with a host.
func (s *site) admits(host string) bool {
	if s.options.HostAllowed == nil {
		return s.options.Mode == ModeOpen
	}
	return s.options.HostAllowed(host)
}

func (s *site) now() time.Time { return s.options.Now() }

// Addresses of what we serve. An actor id must never change after the first contact with another server.

func (s *site) actorIRI(agent string) string { return s.base + "/agents/" + agent }

func (s *site) profileURL(agent string) string { return s.base + "/@" + agent }

func (s *site) sharedInbox() string { return s.base + "/inbox" }

func (s *site) noteIRI(replyID string) string { return s.base + "/o/" + replyID }

// postIRI names a post of a chain, counted from 1; the first has the id of the answer.
func (s *site) postIRI(replyID string, post int) string {
	if post <= 1 {
		return s.noteIRI(replyID)
	}
	return s.noteIRI(replyID) + "/" + strconv.Itoa(post)
}

// conversationIRI is the context of a conversation that no one else has named (FEP-7888). The first question of it that came
// here stands for it, with all that was said to it.
func (s *site) conversationIRI(turn string) string { return s.base + "/contexts/" + turn }

// instanceIRI is the server's own actor, which signs our fetches. Its path is no agent's, whatever the agents' names.
func (s *site) instanceIRI() string { return s.base + "/actor" }

// instanceName is the user part of the server's own actor: its domain, without a port.
func (s *site) instanceName() string {
	return strings.Trim(strings.ReplaceAll(identity.HostOf(s.options.Domain), ":", "-"), "[]")
}

// proofKeyFragment ends the id of the key for proofs.
const proofKeyFragment = "#ed25519-key"

// proofKeyIRI names the key of an agent's proofs; an empty agent is the server itself.
func (s *site) proofKeyIRI(agent string) string {
	return s.signerIRI(agent) + proofKeyFragment
}

// signerIRI is the actor of an agent; an empty agent is the server itself.
func (s *site) signerIRI(agent string) string {
	if agent == "" {
		return s.instanceIRI()
	}
	return s.actorIRI(agent)
}

// agentOf returns the agent that an IRI names by its actor id or profile. A slash at the end and the spelling of the host make no
// difference.
func (s *site) agentOf(iri string) (exchange.AgentProfile, bool) {
	path, found := strings.CutPrefix(iri, s.base)
	if !found {
		if origin, ok := document.Origin(iri); !ok || origin != s.base {
			return exchange.AgentProfile{}, false
		}
		_, rest, _ := strings.Cut(iri, "://")
		path = rest[max(strings.IndexByte(rest, '/'), 0):]
	}

	name, found := strings.CutPrefix(path, "/agents/")
	if !found {
		name, found = strings.CutPrefix(path, "/@")
	}
	name = strings.TrimSuffix(name, "/")
	if !found || !identity.ValidAgentName(name) {
		return exchange.AgentProfile{}, false
	}
	return s.options.Directory.Agent(name)
}

// replyID reads the id of a reply out of one of our note IRIs.
func (s *site) replyID(iri string) (string, bool) {
	id, found := strings.CutPrefix(iri, s.base+"/o/")
	if !found {
		return "", false
	}
	id, _, _ = strings.Cut(id, "/")
	return id, id != "" && len(id) <= 64
}

// firstPost returns the id of the answer that one of our posts belongs to; any other id stays as it is.
func (s *site) firstPost(iri string) string {
	rest, ours := strings.CutPrefix(iri, s.noteIRI(""))
	id, post, chained := strings.Cut(rest, "/")
	if number, err := strconv.Atoi(post); ours && chained && err == nil && number > 1 && number <= notetext.MaxPosts {
		return s.noteIRI(id)
	}
	return iri
}

// principal is what the engine knows an actor by, whatever proved it.
func (s *site) principal(actor string) string { return s.options.Domain + " " + actor }

// Removed reports whether there was an agent of the name that is not here any more: its keys still are. Other servers forget
// an account that is gone (410), and go on asking for one that cannot be found. A store that does not answer knows nothing.
func (s *site) Removed(ctx context.Context, name string) bool {
	if _, here := s.options.Directory.Agent(name); here || !identity.ValidAgentName(name) {
		return false
	}
	_, found, err := s.options.State.Get(ctx, keyNamespace, rsaPrefix+strings.ToLower(name))
	return err == nil && found
}

// requestedAgent returns the agent that a request names, or answers that it is not here.
func (s *site) requestedAgent(w http.ResponseWriter, r *http.Request) (exchange.AgentProfile, bool) {
	name := httpserver.Param(r, "agent")
	agent, found := s.options.Directory.Agent(name)
	switch {
	case found:
	case s.Removed(r.Context(), name):
		refuse(w, r, fault.New(fault.Gone, "this agent was removed"))
	default:
		refuse(w, r, fault.New(fault.NotFound, "no such agent"))
	}

	return agent, found
}

// userAgent is sent with every request: GoToSocial answers 418 to an empty one.
func (s *site) userAgent() string {
	version := s.options.Version
	if version == "" {
		version = "dev"
	}
	return "inbox/" + version + " (+" + cmp.Or(s.options.About, s.base+"/") + ")"
}

func (s *site) putJSON(ctx context.Context, namespace, key string, document any) error {
	value, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("encode %s: %w", namespace, err)
	}
	return s.options.State.Put(ctx, namespace, key, value, time.Time{})
}

// replyAt finds the answer whose post an IRI names. It is not found where the IRI is another server's or the answer is gone.
func (s *site) replyAt(ctx context.Context, iri string) (reply exchange.Reply, found bool, err error) {
	id, ours := s.replyID(iri)
	if !ours {
		return reply, false, nil
	}

	switch reply, _, err = s.options.Replies.Reply(ctx, id); {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Gone):
		return reply, false, nil
	case err != nil:
		return reply, false, unavailable(err)
	}
	return reply, true, nil
}

// addressee returns the agent that may be the only reader of what an activity is about: the one whose inbox it came to, or whom
// it addresses first. Empty = everyone may read it, or no agent is addressed.
func (s *site) addressee(inbox string, activity document.Object) string {
	audience := document.ReadAudience(activity, document.Embedded(activity["object"]))
	if slices.ContainsFunc(audience.All(), document.IsPublic) {
		return ""
	}
	if inbox != "" {
		return inbox
	}
	for _, iri := range audience.All() {
		if agent, found := s.agentOf(iri); found {
			return agent.Name
		}
	}
	return ""
}
