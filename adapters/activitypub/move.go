package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
)

const (
	// movedNamespace has what is known of a moved account: new actor IRI → movedFrom. It is evidence and gives nothing.
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

// movedFrom says that two accounts are one person's, as both of them said at the time.
type movedFrom struct {
	Actor string    `json:"actor"`
	At    time.Time `json:"at"`
}

// moved queues the check of a Move: it asks another server, which nobody waits for.
func (m *moves) moved(ctx context.Context, in *incoming) (string, error) {
	target := document.Reference(in.activity["target"])
	if document.Reference(in.activity["object"]) != in.actor || !m.isRemote(target) || target == in.actor || !m.admits(document.HostOf(target)) {
		return outcomeIgnored, nil
	}
	return outcomeOf(m.schedule(ctx, "activitypub:move:"+in.actor, laterJob{Kind: jobMove, Actor: in.actor, Inbox: target}))
}

// checkMove is the job: the new account has to name the old one in alsoKnownAs. Then it follows in place of the old one,
// and who had blocked an agent has blocked it still. It stays a new address: threads, rules and rights of the old account
// are not its own.
func (m *moves) checkMove(ctx context.Context, old, target string) error {
	doc, err := m.fetcher.fetchExact(ctx, target)
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
	if err := m.takeAlong(ctx, old, actor); err != nil {
		return fault.RetryIn(0, "our own store did not answer", err)
	}
	return nil
}

func (m *moves) takeAlong(ctx context.Context, old string, actor *remoteActor) error {
	var follows []string
	for _, agent := range m.options.Directory.Agents() {
		followed, err := m.follows.followAlong(ctx, agent.Name, old, actor)
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

// followAlong gives the new account the place of the old one among those who follow, or block, an agent.
func (f *follows) followAlong(ctx context.Context, agent, old string, actor *remoteActor) (follows bool, err error) {
	blocked, err := f.blocked(ctx, agent, old)
	if err != nil {
		return false, err
	}
	if blocked {
		if err := f.putBlock(ctx, agent, actor.ID, ""); err != nil {
			return false, err
		}
	}
	value, found, err := f.options.State.Get(ctx, followerNamespace+agent, old)
	var entry follower
	if err != nil || !found || json.Unmarshal(value, &entry) != nil {
		return false, err
	}
	entry.Inbox, entry.SharedInbox, entry.Follow = actor.Inbox, actor.SharedInbox, ""
	if err := f.putJSON(ctx, followerNamespace+agent, actor.ID, entry); err != nil {
		return false, err
	}
	_, err = f.unfollow(ctx, agent, old)
	return true, err
}

// movedFrom gives the account from which the actor moved here; empty = none that we know of.
func (a *actors) movedFrom(ctx context.Context, actor string) (string, error) {
	value, found, err := a.options.State.Get(ctx, movedNamespace, actor)
	var from movedFrom
	if err != nil || !found {
		return "", err
	}
	if json.Unmarshal(value, &from) != nil {
		return "", errors.New("decode moved account")
	}
	return from.Actor, nil
}
