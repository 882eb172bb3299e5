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
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clip"
	"inbox/internal/fault"
)

const (
	// movedNamespace has what is known of a moved account: new actor IRI → movedFrom. It is evidence and returns nothing.
	movedNamespace = "activitypub.moved"
	jobMove        = "move" // check both ends of a Move and take the follow along

	codeMoved = "move:activitypub"
)

// moves follows accounts that move here, and lets agents move elsewhere.
type moves struct {
	*site
	fetcher  *fetcher
	actors   *actors
	follows  *follows
	outbox   *outbox
	profiles *profiles
}

// movedFrom means that two accounts are one person's, as both of them said at the time.
type movedFrom struct {
	Actor string    `json:"actor"`
	At    time.Time `json:"at"`
}

// moved queues the check of a Move: it asks another server, which no one waits for.
func (m *moves) moved(ctx context.Context, in *incoming) (string, error) {
	target := document.Reference(in.activity["target"])
	if document.Reference(in.activity["object"]) != in.actor || !m.isRemote(target) || target == in.actor || !m.admits(document.HostOf(target)) {
		return outcomeIgnored, nil
	}
	// The owner of the new account has not agreed to any link.
	if err := m.options.Amender.EndLinks(ctx, m.principal(in.actor), "the account moved to "+target); err != nil {
		return "", err
	}
	return outcomeOf(m.schedule(ctx, "activitypub:move:"+in.actor, laterJob{Kind: jobMove, Actor: in.actor, Inbox: target}))
}

// checkMove is the job: the new account has to name the old one in alsoKnownAs. Then it follows in place of the old one,
// and who had blocked an agent has blocked it still. It stays a new address: threads, rules and rights of the old account
// are not its own.
func (m *moves) checkMove(ctx context.Context, old, target string) error {
	got, err := m.fetcher.fetchExact(ctx, target, reading{})
	doc := got.doc
	switch {
	case isGone(err):
		return fault.GiveUp("the account that was moved to does not exist", err)
	case err != nil:
		return fault.RetryIn(0, "the account that was moved to could not be read", err)
	}

	if !slices.Contains(document.References(doc["alsoKnownAs"]), old) {
		return fault.GiveUp("the account that was moved to does not name the old one in alsoKnownAs", nil)
	}
	actor, err := readActor(doc, m.now())
	if err != nil {
		return fault.GiveUp("the account that was moved to cannot be read", err)
	}
	if err := m.transferFollows(ctx, old, actor); err != nil {
		return fault.RetryIn(0, "our own store did not answer", err)
	}
	return nil
}

func (m *moves) transferFollows(ctx context.Context, old string, actor *remoteActor) error {
	var follows []string
	for _, agent := range m.options.Directory.Agents() {
		followed, err := m.follows.transferFollow(ctx, agent.Name, old, actor)
		if err != nil {
			return err
		}

		if followed {
			follows = append(follows, agent.Name)
		}
	}

	if err := m.putJSON(ctx, movedNamespace, actor.ID, movedFrom{old, m.now().UTC()}); err != nil {
		return err
	}

	// The next message of the new account has the old one in its evidence.
	m.actors.addresses.drop(actor.ID)
	if err := m.options.State.Delete(ctx, addressNamespace, actor.ID); err != nil {
		return err
	}

	record := exchange.AuditRecord{
		At: m.now(), Code: codeMoved, Principal: m.principal(old),
		Detail: "moved to " + actor.ID + ", which names it in alsoKnownAs; rules and threads stay with the old account",
	}
	for _, record.Agent = range follows {
		if err := m.options.Records.Audit(ctx, record); err != nil {
			return err
		}
	}

	if len(follows) == 0 {
		return m.options.Records.Audit(ctx, record)
	}
	return nil
}

const departedNamespace = "activitypub.departed" // agent → moved

// moved says where an agent went.
type moved struct {
	Target string    `json:"target"` // actor IRI
	At     time.Time `json:"at"`
}

// Move tells the followers of an agent that it is another account now, and shows it on the actor. Target is an address
// or an actor IRI. The other account must name this agent in alsoKnownAs, as every server demands that acts on a Move. It
// returns the target's IRI. The same target again tells everyone again.
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
	got, err := m.fetcher.fetchExact(ctx, iri, reading{})
	doc := got.doc
	switch {
	case err != nil:
		return "", fault.Wrap(fault.Unavailable, "the account "+iri+" cannot be read from its server", err)
	case !document.IsActor(doc):
		return "", fault.Newf(fault.Malformed, "%s is not an account", iri)
	case document.Text(doc, "movedTo") != "":
		return "", fault.Newf(fault.Conflict, "%s has moved on to %s itself", iri, clip.Bytes(document.Text(doc, "movedTo"), 200))
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
