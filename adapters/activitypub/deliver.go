package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
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

// destination is our note on one place that a reply goes to: the asker's inbox, or an address that is resolved when
// the reply is sent.
type destination struct {
	Actor   string `json:"actor,omitempty"`
	Inbox   string `json:"inbox,omitempty"`
	Address string `json:"address,omitempty"`
	Like    bool   `json:"like,omitempty"`   // the reply is a Like of the question and no note
	Post    int    `json:"post,omitempty"`   // of a chain, counted from 1; 0 = the first
	Shared  bool   `json:"shared,omitempty"` // the inbox is that of a server, for its followers; Actor is one of them
}

// Plan gives the note's id and its destinations: the asker, and everybody whom the agent added in to and cc.
func (o *outbox) Plan(ctx context.Context, reply exchange.Reply) (exchange.Plan, error) {
	asked, err := readRoute(reply.Route)
	if err != nil {
		return exchange.Plan{}, fault.GiveUp("the stored question cannot be read", err)
	}
	if asked.Quiet && reply.Notice == exchange.NoticeAck {
		return exchange.Plan{}, nil
	}
	plan := exchange.Plan{NativeID: o.noteIRI(reply.ID), Open: openly(o.visibilityOf(reply, asked))}
	main := destination{Actor: asked.Actor, Inbox: asked.Inbox}
	if openly(o.visibilityOf(reply, asked)) && asked.SharedInbox != "" {
		main.Inbox = asked.SharedInbox
	}
	if o.isLike(reply) {
		plan.NativeID, main.Like = "", true // nothing that anybody could read or answer
	}
	places := []destination{main}
	for _, address := range o.extras(reply, asked) {
		places = append(places, destination{Address: address.String()})
	}
	plan.Posts = len(notetext.Split(reply.Response.Parts, o.options.PostLength, notetext.MaxPosts))
	plan.Spread = plan.Open && !main.Like && o.follows.hasFollowers(ctx, reply.Agent)
	plan.Destinations, err = chained(places, plan.Posts)
	return plan, err
}

// chained gives every place all posts. A place gets them in order: its deliveries run one after the other.
func chained(places []destination, posts int) (all []exchange.Destination, err error) {
	for post := range posts {
		for _, place := range places {
			if post > 0 {
				place.Post = post + 1
			}
			entry, err := place.entry()
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

// maxExtras is how many people an agent can add to one reply.
const maxExtras = 20

// extras are the addresses that the agent added, without the asker and without our own agents, who are reached
// inside this server. A policy answer is private and loses them all.
func (s *site) extras(reply exchange.Reply, asked route) []identity.Address {
	if hasPolicy(reply.Response) {
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

// Deliver makes one attempt to bring a reply to one inbox.
func (o *outbox) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	var place destination
	if err := json.Unmarshal(delivery.Destination.Data, &place); err != nil {
		return exchange.DeliveryReceipt{}, fault.GiveUp("the stored destination cannot be read", err)
	}
	relayed, place, err := o.relay(ctx, delivery.Reply, place)
	if err != nil {
		return exchange.DeliveryReceipt{}, err
	}
	if err := o.allowed(ctx, delivery.Reply.Agent, place); err != nil {
		return exchange.DeliveryReceipt{}, err
	}
	body, err := o.written(ctx, delivery, relayed, place)
	if err != nil {
		return exchange.DeliveryReceipt{}, fault.GiveUp("the reply cannot be written as an activity", err)
	}
	if err := o.remember(ctx, delivery, place); err != nil {
		return exchange.DeliveryReceipt{}, fault.RetryIn(0, "our own store did not answer", err)
	}
	detail, err := o.transport.post(ctx, parcel{delivery.Reply.Agent, place.Actor, place.Inbox, body, delivery.Attempt, place.Shared})
	return exchange.DeliveryReceipt{Detail: detail}, err
}

// remember keeps what others will ask us about a reply, before it leaves.
func (o *outbox) remember(ctx context.Context, delivery exchange.Delivery, place destination) error {
	switch {
	case delivery.Action == exchange.ActionDelete:
		return o.interactions.withdrawQuotes(ctx, delivery.Reply)
	case delivery.Action == exchange.ActionSend && place.Post <= 1 && !place.Shared:
		return o.keepFollowUp(ctx, delivery.Reply)
	}
	return nil
}

// written gives the activity that carries a reply to one place.
func (o *outbox) written(ctx context.Context, delivery exchange.Delivery, relayed []person, place destination) ([]byte, error) {
	reply, post := delivery.Reply, max(place.Post, 1)
	if place.Like {
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

// allowed refuses to send to whoever blocked the agent, to hosts that the operator excludes and to ourselves.
func (o *outbox) allowed(ctx context.Context, agent string, place destination) error {
	if !o.isRemote(place.Inbox) {
		return fault.GiveUp("the inbox is not an address on another server", nil)
	}
	if !o.admits(document.HostOf(place.Inbox)) {
		return fault.GiveUp("the host is excluded by this server's operator", nil)
	}
	blocked, err := o.follows.blocked(ctx, agent, place.Actor)
	switch {
	case err != nil:
		return fault.RetryIn(0, "our own store did not answer", err)
	case blocked && !place.Shared:
		return fault.GiveUp("the recipient has blocked this agent", nil)
	}
	return nil
}

const relayNamespace = "activitypub.relay" // reply id → []person

// relay finds everybody else whom the reply mentions and completes the destination. The people are resolved once for
// a reply, so that all recipients get the same note; somebody who cannot be found does not hold up the others.
func (o *outbox) relay(ctx context.Context, reply exchange.Reply, place destination) ([]person, destination, error) {
	asked, err := readRoute(reply.Route)
	if err != nil {
		return nil, place, fault.GiveUp("the stored question cannot be read", err)
	}
	extras := o.extras(reply, asked)
	if len(extras) == 0 {
		return nil, place, nil
	}
	people, err := o.people(ctx, reply.ID, extras)
	if err != nil {
		return nil, place, err
	}
	if place.Address == "" {
		return people, place, nil
	}
	for _, one := range people {
		if one.Address == place.Address {
			place.Actor, place.Inbox = one.Actor, one.Inbox
			return people, place, nil
		}
	}
	return nil, place, fault.RetryIn(0, place.Address+" could not be found by WebFinger", nil)
}

func (o *outbox) people(ctx context.Context, replyID string, addresses []identity.Address) ([]person, error) {
	value, found, err := o.options.State.Get(ctx, relayNamespace, replyID)
	if err != nil {
		return nil, fault.RetryIn(0, "our own store did not answer", err)
	}
	var people []person
	if found && json.Unmarshal(value, &people) == nil {
		return people, nil
	}
	for _, address := range addresses {
		if one, err := o.actors.resolve(ctx, address); err == nil {
			people = append(people, one)
		} else if ctx.Err() != nil {
			return nil, fault.RetryIn(0, "no time left to find "+address.String(), err)
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
		return nil, fault.RetryIn(0, "our own store did not answer", err)
	}
	var kept []person
	if json.Unmarshal(current, &kept) == nil && len(kept) > 0 {
		return kept, nil
	}
	return people, nil
}

// resolve finds the actor behind an address.
func (a *actors) resolve(ctx context.Context, address identity.Address) (person, error) {
	if !a.admits(address.Domain) {
		return person{}, errors.New("the host is excluded by this server's operator")
	}
	_, iri, err := a.fetcher.webfinger(ctx, address)
	if err != nil {
		return person{}, err
	}
	if !a.isRemote(iri) {
		return person{}, errors.New("webfinger names no actor on another server")
	}
	actor, found := a.storedActor(ctx, iri)
	if !found || !actor.fresh(a.now()) {
		if actor, err = a.fetchActor(ctx, iri); err != nil {
			return person{}, err
		}
	}
	profile := actor.URL
	if profile == "" {
		profile = actor.ID
	}
	return person{Address: address.String(), Actor: actor.ID, Profile: profile, Inbox: actor.Inbox}, nil
}

// published says whether everybody may read the note of a reply.
func (s *site) published(reply exchange.Reply) bool {
	if !ownWay(reply) {
		return false
	}
	asked, err := readRoute(reply.Route)
	return err == nil && openly(s.visibilityOf(reply, asked))
}

// ownWay says whether a reply is a note at all.
func ownWay(reply exchange.Reply) bool {
	return reply.Message.ReceivedVia == normalized.ViaActivityPub && !reply.Response.Silent
}
