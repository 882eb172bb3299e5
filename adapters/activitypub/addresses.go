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

// isRemote says whether an IRI may name something on another server: https (http under AllowPrivate), a host
// that is not ours.
func (a *Adapter) isRemote(iri string) bool {
	text, ok := document.Origin(iri)
	return ok && (a.options.AllowPrivate || strings.HasPrefix(text, "https://")) && !a.isOurs(text)
}

// isOurs says whether an IRI is on the host where our actors live.
func (a *Adapter) isOurs(iri string) bool { return document.HostOf(iri) == a.host }

// admits says whether the operator lets us deal with a host.
func (a *Adapter) admits(host string) bool {
	if a.options.HostAllowed == nil {
		return a.options.Mode == ModeOpen
	}
	return a.options.HostAllowed(host)
}

func (a *Adapter) now() time.Time { return a.options.Now() }

// Addresses of what we serve. An actor id must never change after the first contact with another server.

func (a *Adapter) actorIRI(agent string) string   { return a.base + "/agents/" + agent }
func (a *Adapter) profileURL(agent string) string { return a.base + "/@" + agent }
func (a *Adapter) sharedInbox() string            { return a.base + "/inbox" }
func (a *Adapter) noteIRI(replyID string) string  { return a.base + "/o/" + replyID }

// postIRI names a post of a chain, counted from 1; the first has the id of the answer.
func (a *Adapter) postIRI(replyID string, post int) string {
	if post <= 1 {
		return a.noteIRI(replyID)
	}
	return a.noteIRI(replyID) + "/" + strconv.Itoa(post)
}

// firstPost gives the id of the answer that one of our posts belongs to; any other id stays as it is.
func (a *Adapter) firstPost(iri string) string {
	rest, ours := strings.CutPrefix(iri, a.noteIRI(""))
	id, post, chained := strings.Cut(rest, "/")
	if number, err := strconv.Atoi(post); ours && chained && err == nil && number > 1 && number <= notetext.MaxPosts {
		return a.noteIRI(id)
	}
	return iri
}

// instanceIRI is the server's own actor, which signs our fetches. Its path is no agent's, whatever the agents' names.
func (a *Adapter) instanceIRI() string { return a.base + "/actor" }

// instanceName is the user part of the server's own actor: its domain, without a port.
func (a *Adapter) instanceName() string {
	return strings.Trim(strings.ReplaceAll(identity.HostOf(a.options.Domain), ":", "-"), "[]")
}

// agentOf gives the agent that an IRI names by its actor id or profile.
func (a *Adapter) agentOf(iri string) (exchange.AgentProfile, bool) {
	path, found := strings.CutPrefix(iri, a.base)
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
	return a.options.Directory.Agent(name)
}
