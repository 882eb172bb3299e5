// Package activitypub makes agents reachable from the fediverse: it serves their actors, verifies who sends to their
// inboxes, turns notes into messages and answers as signed notes (ActivityPub, ActivityStreams 2.0, HTTP signatures).
// It keeps no timeline, follows no one, expands no JSON-LD and decides nothing about access: the pipeline does.
package activitypub

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// Adapter is the face of ActivityPub: what a node starts, serves and calls. Its parts own their state, and each knows only
// those that it needs. It is safe for concurrent use and starts no goroutines of its own.
type Adapter struct {
	*site
	keys         *keyring
	fetcher      *fetcher
	actors       *actors
	verifier     *verifier
	follows      *follows
	interactions *interactions
	notes        *notes
	moves        *moves
	inbox        *inbox
	transport    *transport
	renderer     *renderer
	media        *mediaFiles
	outbox       *outbox
	profiles     *profiles
	collections  *collections
}

// Bounds of the caches, in entries.
const (
	maxCachedKeys     = 20_000
	maxCachedFailures = 20_000
	maxCachedHosts    = 10_000
	maxCachedAgents   = 2_000
)

// New checks the options and makes the adapter. It makes no keys and no requests: see Prepare.
func New(options Options) (*Adapter, error) {
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("activitypub: %w", err)
	}

	base, _ := document.Origin(options.PublicURL)
	s := &site{options: options, base: base, host: document.HostOf(base)}
	s.hosts = map[string]bool{s.host: true, options.Domain: true}

	for _, agent := range options.Directory.Agents() {
		if strings.EqualFold(agent.Name, s.instanceName()) {
			return nil, fmt.Errorf("activitypub: agent %q has the name of the server's own actor: choose another name", agent.Name)
		}
	}

	a := &Adapter{site: s, keys: newKeyring(s)}
	a.fetcher = &fetcher{site: s, keys: a.keys, worked: newCache[knownScheme](maxCachedHosts)}
	a.actors = newActors(s, a.fetcher)
	a.verifier = &verifier{
		site: s, fetcher: a.fetcher, actors: a.actors,
		refusals:      newCounter(options.MaxRefusals, refusalPeriod, maxCachedHosts),
		confirmations: newCounter(maxConfirmations, confirmationPeriod, maxCachedHosts),
	}

	a.follows = &follows{site: s, keys: a.keys, followed: newCache[bool](maxCachedAgents), blocking: newCache[bool](maxCachedAgents)}
	a.interactions = &interactions{site: s, verifier: a.verifier}

	a.transport = &transport{site: s, keys: a.keys, actors: a.actors, follows: a.follows, schemes: newCache[knownScheme](maxCachedHosts)}
	a.media = &mediaFiles{site: s, pictures: newCache[[2]int](maxCachedAgents)}
	a.renderer = &renderer{site: s, media: a.media}
	a.outbox = &outbox{
		site: s, keys: a.keys, actors: a.actors, follows: a.follows, interactions: a.interactions, renderer: a.renderer,
		transport: a.transport,
	}

	a.profiles = &profiles{
		site: s, keys: a.keys, verifier: a.verifier, outbox: a.outbox, documents: newCache[encodedDocument](maxCachedAgents),
	}

	a.collections = &collections{site: s, verifier: a.verifier, outbox: a.outbox, renderer: a.renderer}

	a.moves = &moves{site: s, fetcher: a.fetcher, actors: a.actors, follows: a.follows, outbox: a.outbox, profiles: a.profiles}
	a.notes = &notes{site: s, fetcher: a.fetcher, actors: a.actors, follows: a.follows, verifier: a.verifier}
	a.inbox = &inbox{
		site: s, fetcher: a.fetcher, actors: a.actors, verifier: a.verifier, follows: a.follows, interactions: a.interactions,
		notes: a.notes, moves: a.moves, dropRecords: newCounter(maxDropRecords, dropPeriod, maxCachedHosts),
	}

	return a, nil
}

var (
	_ exchange.Acknowledger = (*Adapter)(nil)
	_ exchange.Historian    = (*Adapter)(nil)
	_ exchange.Reviser      = (*Adapter)(nil)
	_ exchange.Spreader     = (*Adapter)(nil)
)

// Routes are all paths of this adapter. Discovery (WebFinger and the like) is in a room of its own.
func (a *Adapter) Routes() []httpserver.Route {
	get := func(pattern string, handler http.HandlerFunc) httpserver.Route {
		return httpserver.Route{Method: http.MethodGet, Pattern: pattern, Handler: handler}
	}

	post := func(pattern string, handler http.HandlerFunc) httpserver.Route {
		return httpserver.Route{Method: http.MethodPost, Pattern: pattern, Handler: handler}
	}

	return []httpserver.Route{
		post("/inbox", a.inbox.serveSharedInbox),
		post("/actor/inbox", a.inbox.serveSharedInbox),
		post("/agents/{agent}/inbox", a.inbox.serveAgentInbox),
		get("/actor", a.profiles.serveInstance),
		get("/actor/{collection}", a.collections.serveInstanceCollection),
		get("/agents/{agent}", a.profiles.serveActor),
		get("/agents/{agent}/{collection}", a.collections.serveCollection),
		get("/agents/{agent}/quotes/{stamp}", a.interactions.serveQuote),
		get("/agents/{agent}/authorizations/{kind}", a.interactions.serveAuthorization),
		get("/o/{id}", a.collections.serveNote),
		get("/o/{id}/activity", a.collections.serveCreate),
		get("/o/{id}/replies", a.collections.serveReplies),
		get("/contexts/{turn}", a.collections.serveConversation),
		get("/o/{id}/{post}", a.collections.serveNote),
		get("/o/{id}/{post}/activity", a.collections.serveCreate),
		get("/o/{id}/{post}/replies", a.collections.serveReplies),
		get("/media/{digest}/{name}", a.media.serve),
	}
}

// The face. Each method is described where its part has it.

// Plan implements exchange.Channel: the id of an answer's note and its destinations.
func (a *Adapter) Plan(ctx context.Context, reply exchange.Reply) (exchange.Plan, error) {
	return a.outbox.Plan(ctx, reply)
}

// Deliver makes one attempt to bring an answer to one inbox.
func (a *Adapter) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	return a.outbox.Deliver(ctx, delivery)
}

// Spread implements exchange.Spreader: the inboxes of the followers, piece by piece.
func (a *Adapter) Spread(ctx context.Context, reply exchange.Reply, cursor string) ([]exchange.Destination, string, error) {
	return a.outbox.Spread(ctx, reply, cursor)
}

// Late implements exchange.Historian: whether a note answers one that was not here when it came.
func (a *Adapter) Late(turn exchange.TurnRecord) bool { return a.notes.Late(turn) }

// Ancestors implements exchange.Historian: the notes before one that entered a thread late.
func (a *Adapter) Ancestors(ctx context.Context, turn exchange.TurnRecord) ([]normalized.HistoricalMessage, error) {
	return a.notes.Ancestors(ctx, turn)
}

// Open begins a conversation of an agent with an account by its address.
func (a *Adapter) Open(ctx context.Context, agent, address string) (json.RawMessage, error) {
	return a.actors.Open(ctx, agent, address)
}

// Owns reports whether an actor is the one behind an address.
func (a *Adapter) Owns(ctx context.Context, actor, address string) (bool, error) {
	return a.actors.Owns(ctx, actor, address)
}

// Prepare makes or loads the keys of all agents and of the server's own actor.
func (a *Adapter) Prepare(ctx context.Context) error { return a.profiles.Prepare(ctx) }

// RotateKey makes a new key for the requests of an agent, or of the server for an empty name, and returns its id.
func (a *Adapter) RotateKey(ctx context.Context, agent string) (keyID string, err error) {
	return a.profiles.RotateKey(ctx, agent)
}

// PublicNotes returns the newest notes of an agent that everyone may read, newest first, at most limit and not more than a page
// of the outbox; none where only signed requests are answered.
func (a *Adapter) PublicNotes(ctx context.Context, agent string, limit int) ([]PublicNote, error) {
	return a.collections.publicNotes(ctx, agent, limit)
}

// Links returns what WebFinger shows of an agent.
func (a *Adapter) Links(agent exchange.AgentProfile) []exchange.Link { return a.profiles.Links(agent) }

// InstanceLinks returns the address of the server's own actor and what WebFinger shows of it.
func (a *Adapter) InstanceLinks() (address string, links []exchange.Link) {
	return a.profiles.InstanceLinks()
}

// AtProfile serves the actor at the address of an agent's page to readers that name ActivityPub.
func (a *Adapter) AtProfile(page http.Handler) http.Handler { return a.profiles.AtProfile(page) }

// Move tells the followers of an agent that it is another account now, and returns that account.
func (a *Adapter) Move(ctx context.Context, agent, target string) (string, error) {
	return a.moves.Move(ctx, agent, target)
}

// Unmove lets an agent that moved be here again.
func (a *Adapter) Unmove(ctx context.Context, agent string) error { return a.moves.Unmove(ctx, agent) }

// MediaURL is the address of a file of an answer, also of one that went another way, such as a file too large for a mail; who
// has the address can read it. Empty when there is none.
func (a *Adapter) MediaURL(reply exchange.Reply, part normalized.Part) string {
	return a.media.URL(reply, part)
}

// AckAfter tells an asker at the time that the operator wants: a note or a like is seen when it comes.
func (a *Adapter) AckAfter(wanted time.Duration) time.Duration { return wanted }

// Revisable implements exchange.Reviser.
func (a *Adapter) Revisable(reply exchange.Reply, nativeID string) error {
	return Revisions{}.Revisable(reply, nativeID)
}

// PostsOf implements exchange.Reviser.
func (a *Adapter) PostsOf(reply exchange.Reply) int {
	return Revisions{a.options.PostLength}.PostsOf(reply)
}

var _ exchange.Reviser = Revisions{}
