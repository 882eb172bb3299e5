package activitypub

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/identity"
	"inbox/internal/fault"
)

const departedNamespace = "activitypub.departed" // agent → moved

// moved says where an agent went.
type moved struct {
	Target string    `json:"target"` // actor IRI
	At     time.Time `json:"at"`
}

// movedTo gives the actor to which an agent moved; empty when it is here.
func (p *profiles) movedTo(ctx context.Context, agent string) (string, error) {
	value, found, err := p.options.State.Get(ctx, departedNamespace, strings.ToLower(agent))
	var where moved
	if err != nil || !found {
		return "", err
	}
	if err := json.Unmarshal(value, &where); err != nil {
		return "", err
	}
	return where.Target, nil
}

// Move tells the followers of an agent that it is another account now, and shows it on the actor. Target is an address
// or an actor IRI. The other account must name this agent in alsoKnownAs, as every server demands that acts on a Move. It
// gives the target's IRI. The same target again tells everybody again.
func (m *moves) Move(ctx context.Context, agent, target string) (string, error) {
	profile, known := m.options.Directory.Agent(agent)
	if !known {
		return "", fault.Newf(fault.NotFound, "there is no agent %q", agent)
	}
	iri, err := m.moveTarget(ctx, target)
	if err != nil {
		return "", err
	}
	own := m.actorIRI(profile.Name)
	doc, err := m.fetcher.fetchExact(ctx, iri)
	switch {
	case err != nil:
		return "", fault.Wrap(fault.Unavailable, "the account "+iri+" cannot be read from its server", err)
	case !document.IsActor(doc):
		return "", fault.Newf(fault.Malformed, "%s is not an account", iri)
	case document.Text(doc, "movedTo") != "":
		return "", fault.Newf(fault.Conflict, "%s has moved on to %s itself", iri, document.Clip(document.Text(doc, "movedTo"), 200))
	case !slices.Contains(document.References(doc["alsoKnownAs"]), own):
		return "", fault.Newf(fault.Forbidden, "%s does not name %s in alsoKnownAs; add it there as an alias (in Mastodon: Preferences, Account, Moving from a different account), then try again", iri, own)
	}
	before, err := m.profiles.movedTo(ctx, profile.Name)
	if err != nil {
		return "", unavailable(err)
	}
	if before != "" && before != iri {
		return "", fault.Newf(fault.Conflict, "%s has moved to %s before; undo that first with: inbox move --undo %s", profile.Name, before, profile.Name)
	}
	value, err := json.Marshal(moved{iri, m.now().UTC()})
	if err != nil {
		return "", err
	}
	if err := m.options.State.Put(ctx, departedNamespace, strings.ToLower(profile.Name), value, time.Time{}); err != nil {
		return "", unavailable(err)
	}
	if err := m.announceMove(ctx, profile.Name, iri); err != nil {
		return "", err
	}
	return iri, m.profiles.announceActor(ctx, profile.Name)
}

// Unmove lets the agent be here again. Followers who went stay where they are: no server takes a Move back.
func (m *moves) Unmove(ctx context.Context, agent string) error {
	before, err := m.profiles.movedTo(ctx, agent)
	switch {
	case err != nil:
		return unavailable(err)
	case before == "":
		return fault.Newf(fault.Conflict, "%s has not moved", agent)
	}
	if err := m.options.State.Delete(ctx, departedNamespace, strings.ToLower(agent)); err != nil {
		return unavailable(err)
	}
	return m.profiles.announceActor(ctx, agent)
}

func (m *moves) announceMove(ctx context.Context, agent, target string) error {
	own := m.actorIRI(agent)
	id := own + "#moves/" + strconv.FormatInt(m.now().UnixMilli(), 10)
	return m.outbox.announce(ctx, agent, id, struct {
		Context []any    `json:"@context"`
		ID      string   `json:"id"`
		Type    string   `json:"type"`
		Actor   string   `json:"actor"`
		Object  string   `json:"object"`
		Target  string   `json:"target"`
		To      []string `json:"to"`
	}{[]any{document.ActivityStreams, signature.IntegrityContext}, id, "Move", own, own, target, []string{own + "/followers"}}, false)
}

// moveTarget reads an actor IRI, or finds the one behind an address.
func (m *moves) moveTarget(ctx context.Context, target string) (string, error) {
	if _, isIRI := document.Origin(target); isIRI {
		if !m.isRemote(target) || !m.admits(document.HostOf(target)) {
			return "", fault.InField("target", "must be an account on another server that this one deals with")
		}
		return target, nil
	}
	address, err := identity.ParseAddress(target)
	switch {
	case err != nil:
		return "", fault.InField("target", "must be an address like @name@server.example or the address of an actor (https://…)")
	case m.hosts[address.Domain]:
		return "", fault.InField("target", "is an address of this server; an agent moves to another one")
	}
	found, err := m.actors.resolve(ctx, address)
	if err != nil {
		return "", fault.Wrap(fault.NotFound, address.String()+" could not be found by WebFinger", err)
	}
	return found.Actor, nil
}
