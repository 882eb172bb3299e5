package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
)

// outbox plans and makes the deliveries of answers, and tells followers and peers of what changed.
type outbox struct {
	*site
	keys         *keyring
	actors       *actors
	follows      *follows
	interactions *interactions
	renderer     *renderer
	transport    *transport
}

// destination is one target of a reply: the asker's inbox, or an address that is resolved when
// the reply is sent.
type destination struct {
	Actor   string `json:"actor,omitempty"`
	Inbox   string `json:"inbox,omitempty"`
	Address string `json:"address,omitempty"`
	Like    bool   `json:"like,omitempty"`   // the reply is a Like of the question and no note
	Post    int    `json:"post,omitempty"`   // of a chain, counted from 1; 0 = the first
	Shared  bool   `json:"shared,omitempty"` // the inbox is that of a server, for its followers; Actor is one of them
}

// Plan returns the note's id and its destinations: the asker, and everyone whom the agent added in to and cc.
func (o *outbox) Plan(ctx context.Context, reply exchange.Reply) (exchange.Plan, error) {
	asked, err := readRoute(reply.Route)
	if err != nil {
		return exchange.Plan{}, fault.GiveUp("the stored question cannot be read", err)
	}
	if asked.Quiet && reply.Notice == exchange.NoticeAck {
		return exchange.Plan{}, nil
	}

	plan := exchange.Plan{NativeID: o.noteIRI(reply.ID), Open: isOpen(o.replyVisibility(reply, asked))}
	main := destination{Actor: asked.Actor, Inbox: asked.Inbox}
	if isOpen(o.replyVisibility(reply, asked)) && asked.SharedInbox != "" {
		main.Inbox = asked.SharedInbox
	}

	if o.isLike(reply) {
		plan.NativeID, main.Like = "", true // nothing that anyone could read or answer
	}

	targets := []destination{main}
	for _, address := range o.extras(reply, asked) {
		targets = append(targets, destination{Address: address.String()})
	}

	plan.Posts = len(notetext.Split(reply.Response.Parts, o.options.PostLength, notetext.MaxPosts))
	plan.Spread = plan.Open && !main.Like && o.follows.hasFollowers(ctx, reply.Agent)
	plan.Destinations, err = chained(targets, plan.Posts)
	return plan, err
}

// chained lists all posts for every target. A target gets them in order: its deliveries run one after the other.
func chained(targets []destination, posts int) (all []exchange.Destination, err error) {
	for post := range posts {
		for _, target := range targets {
			if post > 0 {
				target.Post = post + 1
			}
			entry, err := target.entry()
			if err != nil {
				return nil, err
			}
			all = append(all, entry)
		}
	}

	return all, nil
}

func (d destination) entry() (exchange.Destination, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return exchange.Destination{}, fmt.Errorf("encode destination: %w", err)
	}
	if d.Address != "" {
		address, _ := identity.ParseAddress(d.Address)
		return exchange.Destination{Key: address.Domain, Address: d.Address, Data: data}, nil
	}
	return exchange.Destination{Key: document.HostOf(d.Inbox), Address: d.Inbox, Data: data}, nil
}

// Deliver makes one attempt to bring a reply to one inbox.
func (o *outbox) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	var target destination
	if err := json.Unmarshal(delivery.Destination.Data, &target); err != nil {
		return exchange.DeliveryReceipt{}, fault.GiveUp("the stored destination cannot be read", err)
	}

	relayed, target, err := o.relay(ctx, delivery.Reply, target)
	if err != nil {
		return exchange.DeliveryReceipt{}, err
	}
	if err := o.allowed(ctx, delivery.Reply.Agent, target); err != nil {
		return exchange.DeliveryReceipt{}, err
	}

	body, err := o.written(ctx, delivery, relayed, target)
	if err != nil {
		return exchange.DeliveryReceipt{}, fault.GiveUp("the reply cannot be written as an activity", err)
	}
	if err := o.remember(ctx, delivery, target); err != nil {
		return exchange.DeliveryReceipt{}, storeFailed(err)
	}

	detail, err := o.transport.post(ctx, outgoing{delivery.Reply.Agent, target.Actor, target.Inbox, body, delivery.Attempt, target.Shared})
	return exchange.DeliveryReceipt{Detail: detail}, err
}

// remember keeps what others will ask us about a reply, before it leaves.
func (o *outbox) remember(ctx context.Context, delivery exchange.Delivery, target destination) error {
	switch {
	case delivery.Action == exchange.ActionDelete:
		return o.interactions.withdrawQuotes(ctx, delivery.Reply)
	case delivery.Action == exchange.ActionSend && target.Post <= 1 && !target.Shared:
		return o.keepFollowUp(ctx, delivery.Reply)
	}
	return nil
}

// written returns the activity that carries a reply to one target.
func (o *outbox) written(ctx context.Context, delivery exchange.Delivery, relayed []person, target destination) ([]byte, error) {
	reply, post := delivery.Reply, max(target.Post, 1)
	if target.Like {
		return o.like(reply)
	}

	// An edit may have left fewer posts than were sent.
	if delivery.Action == exchange.ActionDelete || delivery.Action == exchange.ActionUpdate && post > len(o.renderer.postsOf(reply)) {
		return o.deletion(ctx, reply, post, relayed)
	}

	made, err := o.renderer.render(reply, post, relayed, o.options.Present)
	if err != nil {
		return nil, err
	}
	if delivery.Action == exchange.ActionUpdate {
		return o.provenUpdate(ctx, reply, made)
	}
	return o.provenCreate(ctx, reply, made)
}

// provenCreate encodes the Create of a note with its proof, dated like the note.
func (o *outbox) provenCreate(ctx context.Context, reply exchange.Reply, made note) ([]byte, error) {
	body, err := document.Encode(o.renderer.activity(made))
	if err != nil {
		return nil, err
	}
	return o.keys.prove(ctx, reply.Agent, body, reply.CreatedAt)
}

// allowed refuses to send to those who blocked the agent, to hosts that the operator excludes and to ourselves.
func (o *outbox) allowed(ctx context.Context, agent string, target destination) error {
	if !o.isRemote(target.Inbox) {
		return fault.GiveUp("the inbox is not an address on another server", nil)
	}
	if !o.admits(document.HostOf(target.Inbox)) {
		return fault.GiveUp("the host is excluded by this server's operator", nil)
	}

	blocked, err := o.follows.blocked(ctx, agent, target.Actor)
	switch {
	case err != nil:
		return storeFailed(err)
	case blocked && !target.Shared:
		return fault.GiveUp("the recipient has blocked this agent", nil)
	}
	return nil
}

// errNotFound is the cause of a look-up that failed, perhaps for this account alone.
var errNotFound = errors.New("the account was not found")

// storeFailed is no failure of the destination.
func storeFailed(err error) error {
	return fault.RetryIn(0, "our own store did not answer", exchange.WithReach(err, exchange.ReachOurs))
}

const relayNamespace = "activitypub.relay" // reply id → []person

// relay finds everyone else whom the reply mentions and completes the destination. The people are resolved once for
// a reply, so that all recipients get the same note; one who cannot be found does not hold up the others.
func (o *outbox) relay(ctx context.Context, reply exchange.Reply, target destination) ([]person, destination, error) {
	asked, err := readRoute(reply.Route)
	if err != nil {
		return nil, target, fault.GiveUp("the stored question cannot be read", err)
	}

	extras := o.extras(reply, asked)
	if len(extras) == 0 {
		return nil, target, nil
	}

	people, err := o.people(ctx, reply.ID, extras)
	if err != nil {
		return nil, target, err
	}
	if target.Address == "" {
		return welcoming(people), target, nil
	}

	for _, one := range people {
		switch {
		case one.Address != target.Address:
		case one.NoBot:
			return nil, target, fault.GiveUp(target.Address+" asks programs not to write unasked", nil)
		default:
			target.Actor, target.Inbox = one.Actor, one.Inbox
			return welcoming(people), target, nil
		}
	}
	return nil, target, fault.RetryIn(0, target.Address+" could not be found by WebFinger", exchange.WithReach(errNotFound, exchange.ReachSession))
}

func (o *outbox) people(ctx context.Context, replyID string, addresses []identity.Address) ([]person, error) {
	value, found, err := o.options.State.Get(ctx, relayNamespace, replyID)
	if err != nil {
		return nil, storeFailed(err)
	}

	var people []person
	if found && json.Unmarshal(value, &people) == nil {
		return people, nil
	}

	for _, address := range addresses {
		if one, err := o.actors.resolve(ctx, address); err == nil {
			people = append(people, one)
		} else if ctx.Err() != nil {
			return nil, fault.RetryIn(0, "no time left to find "+address.String(), exchange.WithReach(err, exchange.ReachSession))
		}
	}
	if len(people) < len(addresses) {
		return people, nil
	}
	return o.keepPeople(ctx, replyID, people)
}

func (o *outbox) keepPeople(ctx context.Context, replyID string, people []person) ([]person, error) {
	value, err := json.Marshal(people)
	if err != nil {
		return nil, fmt.Errorf("encode people: %w", err)
	}

	current, _, err := o.options.State.PutIfAbsent(ctx, relayNamespace, replyID, value, o.now().Add(knownLife))
	if err != nil {
		return nil, storeFailed(err)
	}

	var kept []person
	if json.Unmarshal(current, &kept) == nil && len(kept) > 0 {
		return kept, nil
	}
	return people, nil
}

// isLike reports whether a reply is the mere sign that the question was seen.
func (o *outbox) isLike(reply exchange.Reply) bool {
	return reply.Notice == exchange.NoticeAck && o.options.Likes != nil && o.options.Likes(reply.Agent)
}

// likeActivity tells that the agent has seen a note. Its id is one of the actor's own, as servers write it: no one reads
// a Like by its id.
type likeActivity struct {
	Context string   `json:"@context"`
	ID      string   `json:"id"`
	Type    string   `json:"type"`
	Actor   string   `json:"actor"`
	Object  string   `json:"object"`
	To      []string `json:"to"`
}

func (o *outbox) like(reply exchange.Reply) ([]byte, error) {
	asked, err := readRoute(reply.Route)
	if err != nil {
		return nil, err
	}

	actor := o.actorIRI(reply.Agent)
	return document.Encode(likeActivity{
		Context: document.ActivityStreams, ID: actor + "#likes/" + reply.ID, Type: "Like", Actor: actor, Object: asked.Note,
		To: []string{asked.Actor},
	})
}

// Spread returns the inboxes of the followers, each once: the shared inbox where a server has one. Those whom the plan
// reaches are left out.
func (o *outbox) Spread(ctx context.Context, reply exchange.Reply, cursor string) ([]exchange.Destination, string, error) {
	var at followerCursor
	if cursor != "" {
		if err := json.Unmarshal([]byte(cursor), &at); err != nil {
			return nil, "", fault.GiveUp("the stored cursor cannot be read", err)
		}
	}

	asked, err := readRoute(reply.Route)
	if err != nil {
		return nil, "", fault.GiveUp("the stored question cannot be read", err)
	}

	targets, more, err := o.follows.followerInboxes(ctx, reply.Agent, &at)
	if err != nil {
		return nil, "", err
	}

	targets = slices.DeleteFunc(targets, func(p destination) bool {
		return p.Inbox == asked.SharedInbox || p.Inbox == asked.Inbox
	})
	destinations, err := chained(targets, max(reply.Posts, 1))
	if err != nil || !more {
		return destinations, "", err
	}

	next, err := json.Marshal(at)
	if err != nil {
		return nil, "", fmt.Errorf("encode cursor: %w", err)
	}
	return destinations, string(next), nil
}

// keepFollowUp remembers that a reply answers a question about one of our notes, when both can be read by everyone. What
// was not answered, such as a note that is held for the operator, is shown to no one.
func (o *outbox) keepFollowUp(ctx context.Context, reply exchange.Reply) error {
	parent, ours := o.replyID(reply.Message.InReplyTo)
	asked, err := readRoute(reply.Route)
	if err != nil || !ours || !isOpen(asked.Visibility) || !o.published(reply) || reply.Notice != 0 || asked.Note == "" {
		return nil //nolint:nilerr // rendering the reply says that its route cannot be read
	}

	value, err := json.Marshal(followUp{reply.Message.InReplyTo, reply.ID})
	if err != nil {
		return err
	}
	return o.options.State.Put(ctx, repliesNamespace+parent, asked.Note, value, o.now().Add(followUpLife))
}

// maxExtras is how many people an agent can add to one reply.
const maxExtras = 20

// extras are the addresses that the agent added, without the asker and without our own agents, who are reached
// inside this server. A policy answer is private and loses them all.
func (s *site) extras(reply exchange.Reply, asked route) []identity.Address {
	if reply.HasPolicy() {
		return nil
	}
	var extras []identity.Address
	seen := map[string]bool{strings.ToLower(asked.Address): true}
	for _, text := range append(append([]string{}, reply.Response.To...), reply.Response.Cc...) {
		address, err := identity.ParseAddress(text)
		key := strings.ToLower(address.String())
		if err != nil || seen[key] || s.hosts[address.Domain] || len(extras) >= maxExtras {
			continue
		}

		seen[key] = true
		extras = append(extras, address)
	}

	return extras
}
