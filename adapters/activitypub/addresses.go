package activitypub

import (
	"strconv"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/identity"
)

// site is what every part of the adapter knows: the options, the server's own addresses, and with whom it deals.
type site struct {
	options Options
	base    string          // public origin, without a slash at the end
	host    string          // host[:port] of base
	hosts   map[string]bool // Host headers that mean this server
}

// isRemote says whether an IRI may name something on another server: https (http under AllowPrivate), a host
// that is not ours.
func (s *site) isRemote(iri string) bool {
	text, ok := document.Origin(iri)
	return ok && (s.options.AllowPrivate || strings.HasPrefix(text, "https://")) && !s.isOurs(text)
}

// isOurs says whether an IRI is on the host where our actors live.
func (s *site) isOurs(iri string) bool { return document.HostOf(iri) == s.host }

// admits says whether the operator lets us deal with a host.
func (s *site) admits(host string) bool {
	if s.options.HostAllowed == nil {
		return s.options.Mode == ModeOpen
	}
	return s.options.HostAllowed(host)
}

func (s *site) now() time.Time { return s.options.Now() }

// Addresses of what we serve. An actor id must never change after the first contact with another server.

func (s *site) actorIRI(agent string) string   { return s.base + "/agents/" + agent }
func (s *site) profileURL(agent string) string { return s.base + "/@" + agent }
func (s *site) sharedInbox() string            { return s.base + "/inbox" }
func (s *site) noteIRI(replyID string) string  { return s.base + "/o/" + replyID }

// postIRI names a post of a chain, counted from 1; the first has the id of the answer.
func (s *site) postIRI(replyID string, post int) string {
	if post <= 1 {
		return s.noteIRI(replyID)
	}
	return s.noteIRI(replyID) + "/" + strconv.Itoa(post)
}

// firstPost gives the id of the answer that one of our posts belongs to; any other id stays as it is.
func (s *site) firstPost(iri string) string {
	rest, ours := strings.CutPrefix(iri, s.noteIRI(""))
	id, post, chained := strings.Cut(rest, "/")
	if number, err := strconv.Atoi(post); ours && chained && err == nil && number > 1 && number <= notetext.MaxPosts {
		return s.noteIRI(id)
	}
	return iri
}

// instanceIRI is the server's own actor, which signs our fetches. Its path is no agent's, whatever the agents' names.
func (s *site) instanceIRI() string { return s.base + "/actor" }

// instanceName is the user part of the server's own actor: its domain, without a port.
func (s *site) instanceName() string {
	return strings.Trim(strings.ReplaceAll(identity.HostOf(s.options.Domain), ":", "-"), "[]")
}

// agentOf gives the agent that an IRI names by its actor id or profile.
func (s *site) agentOf(iri string) (exchange.AgentProfile, bool) {
	path, found := strings.CutPrefix(iri, s.base)
	if !found {
		return exchange.AgentProfile{}, false
	}
	name, found := strings.CutPrefix(path, "/agents/")
	if !found {
		name, found = strings.CutPrefix(path, "/@")
	}
	if !found || !identity.ValidAgentName(name) {
		return exchange.AgentProfile{}, false
	}
	return s.options.Directory.Agent(name)
}
