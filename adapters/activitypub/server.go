package activitypub

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// type: the activity types in countedTypes, or other. outcome: accepted, duplicate, done, ignored, refused, failed
var activities = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_activities_total", Help: "Activities that arrived at an inbox, by type and outcome.",
}, []string{"type", "outcome"})

// inbox takes activities: who acts is proven, then each goes to the part that its type concerns.
type inbox struct {
	*site
	fetcher      *fetcher
	actors       *actors
	verifier     *verifier
	follows      *follows
	interactions *interactions
	notes        *notes
	moves        *moves
}

// Outcomes of an activity that was answered with 202.
const (
	outcomeAccepted  = "accepted"  // became a message
	outcomeDuplicate = "duplicate" // the same message was accepted before
	outcomeDone      = "done"      // a follow, a block and the like took effect
	outcomeIgnored   = "ignored"   // acknowledged without effect
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

func (b *inbox) serveSharedInbox(w http.ResponseWriter, r *http.Request) { b.serveInbox(w, r, "") }

func (b *inbox) serveAgentInbox(w http.ResponseWriter, r *http.Request) {
	agent, found := b.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !found {
		refuse(w, r, b.noAgent(r.Context(), httpserver.Param(r, "agent")))
		return
	}
	b.serveInbox(w, r, agent.Name)
}

// serveInbox answers 202 only after everything that the activity asks for is stored. The agent never runs in here.
func (b *inbox) serveInbox(w http.ResponseWriter, r *http.Request, agent string) {
	in, outcome, err := b.take(w, r, agent)
	if err != nil {
		activities.WithLabelValues(countedType(in.kind), refusalOutcome(err)).Inc()
		slog.DebugContext(r.Context(), "activity refused", "type", document.Clip(in.kind, 64), "actor", document.Clip(in.actor, 256), "error", err)
		if fault.Is(err, fault.Unauthenticated) {
			b.offerSignatures(w, r)
		}
		b.verifier.countRefusal(r, err)
		refuse(w, r, err)
		return
	}
	activities.WithLabelValues(countedType(in.kind), outcome).Inc()
	w.WriteHeader(http.StatusAccepted)
}

func refusalOutcome(err error) string {
	if kind := fault.Of(err).Kind; kind == fault.Internal || kind == fault.Unavailable {
		return "failed"
	}
	return "refused"
}

// take goes through the steps of section 4.1 of the ActivityPub reference in their order, for clients that were not refused
// too often: type, size, syntax, the
// cheap answers, the signature, and only then the activity itself.
func (b *inbox) take(w http.ResponseWriter, r *http.Request, agent string) (incoming, string, error) {
	in := incoming{agent: agent}
	if err := b.verifier.putOff(r); err != nil {
		return in, "", err
	}
	if err := in.read(w, r); err != nil {
		return in, "", err
	}
	if err := b.checkIdentity(&in); err != nil {
		return in, "", err
	}
	if err := b.checkSender(&in); err != nil {
		return in, "", err
	}
	if in.aboutSelf("Delete") || in.aboutSelf("Update") {
		known, err := b.actors.knows(r.Context(), in.actor)
		if err != nil {
			return in, "", unavailable(err)
		}
		if !known { // Mastodon tells every server of every deleted account, and the key is already gone
			return in, outcomeIgnored, nil
		}
	}
	err := b.checkObject(&in)
	if err != nil {
		return in, "", err
	}
	if in.by, err = b.verifier.authenticate(r, &in); err != nil {
		return b.refusedDelete(r.Context(), in, err)
	}
	b.verifier.heard(r.Context(), in.by)
	outcome, err := b.once(r.Context(), &in)
	return in, outcome, err
}

// once does what the activity asks for, unless it did before.
func (b *inbox) once(ctx context.Context, in *incoming) (string, error) {
	repeated, err := b.repeated(ctx, in)
	if err != nil {
		return "", unavailable(err)
	}
	if repeated {
		return outcomeDuplicate, nil
	}
	outcome, err := b.dispatch(ctx, in)
	if err != nil || outcome != outcomeDone {
		return outcome, err
	}
	if err := b.done(ctx, in); err != nil {
		return "", unavailable(err)
	}
	return outcome, nil
}

// checkSender answers those whom the operator excludes, before anything is fetched for them.
func (b *inbox) checkSender(in *incoming) error {
	if !b.admits(document.HostOf(in.actor)) || b.options.ActorAllowed != nil && !b.options.ActorAllowed(in.actor) {
		return errNotAdmitted
	}
	return nil
}

// incoming is one activity with what was proven about it.
type incoming struct {
	agent    string // whose inbox; empty = the shared one
	body     []byte
	activity document.Object
	kind     string
	id       string
	actor    string
	by       proven
}

func (in *incoming) read(w http.ResponseWriter, r *http.Request) error {
	if !document.IsActivityType(r.Header.Get("Content-Type"), false) { // what is taken instead: RFC 9110, section 15.5.16
		w.Header().Set("Accept", acceptActivity)
		return fault.New(fault.Unsupported, "want content type application/activity+json")
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		w.Header().Set("Accept-Encoding", "identity")
		return fault.New(fault.Unsupported, "compressed activities are not accepted")
	}
	var err error
	switch in.body, err = httpserver.ReadBody(r, document.MaxBytes); {
	case fault.Is(err, fault.TooLarge):
		return fault.New(fault.TooLarge, "activity is over 1 MiB")
	case err != nil:
		return err
	}
	in.activity, err = document.Parse(in.body)
	return err
}

// checkIdentity reads who claims to act and refuses claims that can never be true.
func (b *inbox) checkIdentity(in *incoming) error {
	in.kind, in.id, in.actor = document.Type(in.activity), document.Text(in.activity, "id"), document.Reference(in.activity["actor"])
	if in.kind == "" {
		return fault.InField("type", "the activity has no type")
	}
	if _, ok := document.Origin(in.actor); !ok {
		return fault.InField("actor", "the activity names no actor")
	}
	if b.isOurs(in.actor) {
		return fault.InField("actor", "an actor of this server cannot come from outside")
	}
	if in.id != "" && !document.SameOrigin(in.id, in.actor) {
		return fault.InField("id", "activity and actor are on different servers")
	}
	if !b.isRemote(in.actor) {
		return fault.InField("actor", "want an https address")
	}
	return nil
}

// aboutSelf says that an activity of the kind has its own actor as object.
func (in *incoming) aboutSelf(kind string) bool {
	return in.kind == kind && document.Reference(in.activity["object"]) == in.actor
}

// refusedDelete looks once more at a Delete of an actor whose key cannot be had: where the actor's own server says
// that the actor is gone, the Delete is true whoever brought it.
func (b *inbox) refusedDelete(ctx context.Context, in incoming, refusal error) (incoming, string, error) {
	if !in.aboutSelf("Delete") || !isGone(refusal) {
		return in, "", refusal
	}
	if _, found := b.actors.failed.get(in.actor, b.now()); found {
		return in, "", refusal
	}
	b.actors.failed.put(in.actor, refusal, b.now().Add(failureLife))
	if _, err := b.fetcher.isDeleted(ctx, in.actor); err != nil {
		return in, "", refusal
	}
	outcome, err := b.actorDeleted(ctx, &in)
	return in, outcome, err
}
