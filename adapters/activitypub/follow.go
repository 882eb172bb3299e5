package activitypub

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/fault"
)

// FollowerNamespace and an agent's name make the namespace of its followers: actor IRI → follower.
const FollowerNamespace = "activitypub.follower."

const followNamespace = "activitypub.follow" // activityKey of the Follow → followed

// follows keeps who follows and who blocks an agent.
type follows struct {
	*site
	keys     *keyring
	followed *cache[bool] // agent → whether anyone follows it
	blocking *cache[bool] // agent → whether anyone blocks it
}

// follower is an actor that follows an agent.
type follower struct {
	Follow      string    `json:"follow,omitempty"`
	Inbox       string    `json:"inbox"`
	SharedInbox string    `json:"shared_inbox,omitempty"`
	Since       time.Time `json:"since"`
	NoBot       bool      `json:"nobot,omitempty"` // as the profile said then
}

// followed finds a follow by its id, for an Undo that names nothing else.
type followed struct {
	Agent string `json:"agent"`
	Actor string `json:"actor"`
}

// follow stores the follower and sends Accept to their personal inbox. A repeated Follow is accepted again: the
// first Accept may have been lost.
func (f *follows) follow(ctx context.Context, in *incoming) (string, error) {
	agent, found := f.agentOf(document.Reference(in.activity["object"]))
	if !found {
		return outcomeIgnored, nil
	}

	actor := in.by.actor
	entry := follower{Follow: in.id, Inbox: actor.Inbox, SharedInbox: actor.SharedInbox, Since: f.now().UTC(), NoBot: actor.NoBot}
	if put, err := f.holdFollow(ctx, agent.Name, actor, entry); put || err != nil {
		return outcomeOf(err)
	}
	if err := f.forgetFollowID(ctx, agent.Name, actor.ID, in.id); err != nil {
		return "", unavailable(err)
	}
	if err := f.putJSON(ctx, FollowerNamespace+agent.Name, actor.ID, entry); err != nil {
		return "", unavailable(err)
	}

	if in.id != "" {
		if err := f.putJSON(ctx, followNamespace, activityKey(in.id, actor.ID), followed{agent.Name, actor.ID}); err != nil {
			return "", unavailable(err)
		}
	}

	if err := f.answerFollow(ctx, agent.Name, "Accept", in.id, actor); err != nil {
		return "", unavailable(err)
	}
	return outcomeDone, nil
}

// unfollow removes a follower and the way back from the id of the Follow.
func (f *follows) unfollow(ctx context.Context, agent, actor string) (string, error) {
	if err := f.forgetFollowID(ctx, agent, actor, ""); err != nil {
		return "", unavailable(err)
	}
	if err := f.options.State.Delete(ctx, PendingNamespace+agent, actor); err != nil {
		return "", unavailable(err)
	}
	return outcomeOf(f.options.State.Delete(ctx, FollowerNamespace+agent, actor))
}

// forgetFollowID removes the way back from the id of the Follow that stands, unless it is the given one: the ids are the
// sender's to invent, and one follower keeps one row.
func (f *follows) forgetFollowID(ctx context.Context, agent, actor, but string) error {
	value, found, err := f.options.State.Get(ctx, FollowerNamespace+agent, actor)
	var entry follower
	if err != nil || !found || json.Unmarshal(value, &entry) != nil || entry.Follow == "" || entry.Follow == but {
		return err
	}
	return f.options.State.Delete(ctx, followNamespace, activityKey(entry.Follow, actor))
}

// What becomes of a Follow (Options.Follows).
const (
	FollowAccept = "accept" // answered with Accept at once
	FollowHold   = "hold"   // waits for the operator; the actor is shown as locked
	FollowReject = "reject" // answered with Reject
)

// PendingNamespace and an agent's name make the namespace of the follows that wait for the operator: actor IRI → follower.
const PendingNamespace = "activitypub.pending."

func (s *site) followPolicy(agent string) string {
	if s.options.Follows == nil {
		return FollowAccept
	}
	return s.options.Follows(agent)
}

// holdFollow keeps a Follow for the operator or rejects it; false = it is to be accepted. Who follows already is accepted
// again.
func (f *follows) holdFollow(ctx context.Context, agent string, actor *remoteActor, entry follower) (bool, error) {
	policy := f.followPolicy(agent)
	if policy == FollowAccept {
		return false, nil
	}

	_, follows, err := f.options.State.Get(ctx, FollowerNamespace+agent, actor.ID)
	if err != nil || follows {
		return false, err
	}
	if policy == FollowReject {
		return true, f.answerFollow(ctx, agent, "Reject", entry.Follow, actor)
	}
	return true, f.putJSON(ctx, PendingNamespace+agent, actor.ID, entry)
}

// answerFollow sends Accept or Reject of a Follow to the follower's personal inbox.
func (f *follows) answerFollow(ctx context.Context, agent, kind, follow string, actor *remoteActor) error {
	type followObject struct {
		ID     string `json:"id,omitempty"`
		Type   string `json:"type"`
		Actor  string `json:"actor"`
		Object string `json:"object"`
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make activity id: %w", err)
	}

	body, err := document.Encode(struct {
		Context []string     `json:"@context"`
		ID      string       `json:"id"`
		Type    string       `json:"type"`
		Actor   string       `json:"actor"`
		Object  followObject `json:"object"`
		To      []string     `json:"to"`
	}{
		Context: []string{document.ActivityStreams, signature.IntegrityContext}, ID: f.noteIRI(id.String()), Type: kind, Actor: f.actorIRI(agent),
		Object: followObject{follow, "Follow", actor.ID, f.actorIRI(agent)}, To: []string{actor.ID},
	})
	if err != nil {
		return err
	}
	if body, err = f.keys.prove(ctx, agent, body, f.now()); err != nil {
		return err
	}
	return f.sendLater(ctx, agent, actor, json.RawMessage(body))
}

// jobFollow is an operator's word about a Follow that waits.
const jobFollow = "follow"

// FollowDecision makes the job (see Outbox) that accepts or rejects a Follow that waits: a command has no keys to sign with.
func FollowDecision(agent, actor string, accept bool) (partition, payload string, err error) {
	kind := "Reject"
	if accept {
		kind = "Accept"
	}
	body, err := document.Encode(laterJob{Kind: jobFollow, Agent: agent, Actor: actor, Inbox: kind})
	return "activitypub:" + agent + ":" + actor, string(body), err
}

// decideFollow does what the operator said. A Follow that was taken back meanwhile is left alone.
func (f *follows) decideFollow(ctx context.Context, job laterJob) error {
	value, found, err := f.options.State.Get(ctx, PendingNamespace+job.Agent, job.Actor)
	if err != nil {
		return fault.RetryIn(0, "our own store did not answer", err)
	}

	var entry follower
	if !found {
		return nil
	}
	if err := json.Unmarshal(value, &entry); err != nil {
		return fault.GiveUp("the kept Follow cannot be read", err)
	}

	actor := &remoteActor{Actor: document.Actor{ID: job.Actor, Inbox: entry.Inbox}}
	if job.Inbox == "Accept" {
		if err := f.putJSON(ctx, FollowerNamespace+job.Agent, job.Actor, entry); err != nil {
			return fault.RetryIn(0, "our own store did not answer", err)
		}
		if entry.Follow != "" {
			if err := f.putJSON(ctx, followNamespace, activityKey(entry.Follow, job.Actor), followed{job.Agent, job.Actor}); err != nil {
				return fault.RetryIn(0, "our own store did not answer", err)
			}
		}
	}

	if err := f.answerFollow(ctx, job.Agent, job.Inbox, entry.Follow, actor); err != nil {
		return fault.RetryIn(0, "the answer could not be queued", err)
	}
	return f.options.State.Delete(ctx, PendingNamespace+job.Agent, job.Actor)
}

// onlyFollowers returns why a note of an actor that does not follow the agent is not answered; empty = it is.
func (f *follows) onlyFollowers(ctx context.Context, actor *remoteActor, agent exchange.AgentProfile) (string, error) {
	if f.options.FollowersOnly == nil || !f.options.FollowersOnly(agent.Name) {
		return "", nil
	}
	_, follows, err := f.options.State.Get(ctx, FollowerNamespace+agent.Name, actor.ID)
	if err != nil || follows {
		return "", err
	}
	return "the sender does not follow this agent, which answers its followers alone", nil
}

const (
	spreadPage   = 100             // followers that are read for one piece
	followedLife = 5 * time.Second // how long a first follower may be overlooked
	maxSeen      = 50              // shared inboxes of one host that are remembered between pieces
)

// hasFollowers reports whether a reply may have to go to followers. Their number is read every few seconds at most.
func (f *follows) hasFollowers(ctx context.Context, agent string) bool {
	if !f.options.FollowersGetReplies {
		return false
	}
	if known, found := f.followed.get(agent, f.now()); found {
		return known
	}

	keys, _, err := f.options.State.List(ctx, FollowerNamespace+agent, "", 1)
	if err != nil {
		return true // the job that spreads the reply finds out
	}

	f.followed.put(agent, len(keys) > 0, f.now().Add(followedLife))
	return len(keys) > 0
}

// followerCursor is a cursor in the followers of an agent, who are read in the order of their ids: those of one server come
// together.
type followerCursor struct {
	After string   `json:"after"`          // id of the last follower that was read
	Host  string   `json:"host,omitempty"` // of that follower
	Seen  []string `json:"seen,omitempty"` // inboxes of that host that were given already
}

// followerInboxes returns the inboxes of the next followers and moves the cursor behind them. Hosts that the operator
// excludes are left out, and so are those who told the agent to stop or want nothing of programs.
func (f *follows) followerInboxes(ctx context.Context, agent string, at *followerCursor) (targets []destination, more bool, err error) {
	keys, values, err := f.options.State.List(ctx, FollowerNamespace+agent, at.After, spreadPage)
	if err != nil {
		return nil, false, err
	}

	stored, err := f.options.State.Several(ctx, actorNamespace, keys)
	if err != nil {
		return nil, false, err
	}

	for i, actor := range keys {
		var entry follower
		at.After = actor
		if json.Unmarshal(values[i], &entry) != nil {
			continue
		}
		if entry.renew(stored[actor]); entry.Inbox == "" || entry.NoBot || f.options.Stopped != nil && f.options.Stopped(agent, f.principal(actor)) {
			continue
		}

		target := destination{Actor: actor, Inbox: entry.Inbox}
		if entry.SharedInbox != "" {
			target.Inbox, target.Shared = entry.SharedInbox, true
		}

		if host := document.HostOf(actor); host != at.Host {
			at.Host, at.Seen = host, nil
		}

		if slices.Contains(at.Seen, target.Inbox) || !f.admits(document.HostOf(target.Inbox)) {
			continue
		}
		if target.Shared && len(at.Seen) < maxSeen {
			at.Seen = append(at.Seen, target.Inbox)
		}
		targets = append(targets, target)
	}

	return targets, len(keys) == spreadPage, nil
}

// renew takes over what the actor says by now, where we know it: its inboxes may have moved since the Follow, and its
// profile may ask programs not to write unasked. Where others of the same server follow, its shared inbox gets the post all
// the same: that server decides who sees it.
func (f *follower) renew(stored []byte) {
	var known remoteActor
	if stored == nil || json.Unmarshal(stored, &known) != nil {
		return
	}

	if f.NoBot = known.NoBot; known.Inbox != "" {
		f.Inbox, f.SharedInbox = known.Inbox, known.SharedInbox
	}
}

const (
	blockNamespace   = "activitypub.block."  // + agent: actor IRI → id of the Block
	blockIDNamespace = "activitypub.blockid" // activityKey of the Block → followed

	reasonBlocked = "the sender blocked the agent"
	// blockingLife is how long it is believed that no one blocks an agent. A Block that another node took meanwhile still
	// ends every delivery: Deliver asks for the actor itself.
	blockingLife = time.Second
)

// block ends the follow and every further answer to the actor (Deliver asks for it).
func (f *follows) block(ctx context.Context, in *incoming) (string, error) {
	agent, found := f.agentOf(document.Reference(in.activity["object"]))
	if !found {
		return outcomeIgnored, nil
	}
	if err := f.forgetBlockID(ctx, agent.Name, in.actor, in.id); err != nil {
		return "", unavailable(err)
	}
	if err := f.putBlock(ctx, agent.Name, in.actor, in.id); err != nil {
		return "", unavailable(err)
	}

	if in.id != "" {
		if err := f.putJSON(ctx, blockIDNamespace, activityKey(in.id, in.actor), followed{agent.Name, in.actor}); err != nil {
			return "", unavailable(err)
		}
	}

	if err := f.options.Amender.CancelOpen(ctx, agent.Name, f.principal(in.actor), reasonBlocked); err != nil {
		return "", err
	}
	return f.unfollow(ctx, agent.Name, in.actor)
}

// unblock lets the agent write to the actor again.
func (f *follows) unblock(ctx context.Context, agent, actor string) error {
	if err := f.forgetBlockID(ctx, agent, actor, ""); err != nil {
		return err
	}
	return f.options.State.Delete(ctx, blockNamespace+agent, actor)
}

// forgetBlockID removes the way back from the id of an older Block, unless it is the given one: the ids are the sender's to
// invent, and one actor keeps one row.
func (f *follows) forgetBlockID(ctx context.Context, agent, actor, but string) error {
	value, found, err := f.options.State.Get(ctx, blockNamespace+agent, actor)
	var id string
	if err != nil || !found || json.Unmarshal(value, &id) != nil || id == "" || id == but {
		return err
	}
	return f.options.State.Delete(ctx, blockIDNamespace, activityKey(id, actor))
}

// blocked reports whether an actor blocks an agent.
func (f *follows) blocked(ctx context.Context, agent, actor string) (bool, error) {
	if actor == "" {
		return false, nil
	}
	_, found, err := f.options.State.Get(ctx, blockNamespace+agent, actor)
	return found, err
}

// mayBlock is blocked for the hot path, up to blockingLife late: hardly an agent has a single Block to look for.
func (f *follows) mayBlock(ctx context.Context, agent, actor string) (bool, error) {
	if blocking, known := f.blocking.get(agent, f.now()); known && !blocking {
		return false, nil
	}
	keys, _, err := f.options.State.List(ctx, blockNamespace+agent, "", 1)
	if err != nil {
		return false, err
	}
	if len(keys) > 0 {
		return f.blocked(ctx, agent, actor)
	}

	f.blocking.put(agent, false, f.now().Add(blockingLife))
	return false, nil
}

// putBlock stores that an actor blocks an agent.
func (f *follows) putBlock(ctx context.Context, agent, actor, id string) error {
	err := f.putJSON(ctx, blockNamespace+agent, actor, id)
	f.blocking.drop(agent)
	return err
}

// dropFollowers removes those whom an inbox that is gone stood for: one actor, or all followers who share it. A row that
// stays costs another attempt, so failures are only logged: the delivery is over either way.
func (f *follows) dropFollowers(ctx context.Context, p outgoing) {
	if p.actor == "" {
		return
	}
	gone := []string{p.actor}
	if p.shared {
		gone = f.followersAt(ctx, p)
	}

	for _, actor := range gone {
		if _, err := f.unfollow(ctx, p.agent, actor); err != nil {
			slog.WarnContext(ctx, "a follower whose inbox is gone could not be removed", "actor", actor, "error", err)
			return
		}
	}
}

// followersAt finds the followers on the actor's server who share the inbox.
func (f *follows) followersAt(ctx context.Context, p outgoing) (actors []string) {
	base, ok := document.Origin(p.actor)
	if !ok {
		return nil
	}

	after := base + "/"
	for len(actors) < maxDropped {
		keys, values, err := f.options.State.List(ctx, FollowerNamespace+p.agent, after, spreadPage)
		if err != nil {
			return actors
		}

		stored, err := f.options.State.Several(ctx, actorNamespace, keys)
		if err != nil {
			return actors
		}

		for i, actor := range keys {
			var entry follower
			if !strings.HasPrefix(actor, base+"/") {
				return actors
			}
			if json.Unmarshal(values[i], &entry) != nil {
				continue
			}

			if entry.renew(stored[actor]); entry.SharedInbox == p.inbox {
				actors = append(actors, actor)
			}
		}

		if len(keys) < spreadPage {
			return actors
		}
		after = keys[len(keys)-1]
	}

	return actors
}

// transferFollow puts the new account in the place of the old one among those who follow, or block, an agent.
func (f *follows) transferFollow(ctx context.Context, agent, old string, actor *remoteActor) (follows bool, err error) {
	blocked, err := f.blocked(ctx, agent, old)
	if err != nil {
		return false, err
	}

	if blocked {
		if err := f.putBlock(ctx, agent, actor.ID, ""); err != nil {
			return false, err
		}
	}

	value, found, err := f.options.State.Get(ctx, FollowerNamespace+agent, old)
	var entry follower
	if err != nil || !found || json.Unmarshal(value, &entry) != nil {
		return false, err
	}

	entry.Inbox, entry.SharedInbox, entry.Follow = actor.Inbox, actor.SharedInbox, ""
	if err := f.putJSON(ctx, FollowerNamespace+agent, actor.ID, entry); err != nil {
		return false, err
	}

	_, err = f.unfollow(ctx, agent, old)
	return true, err
}
