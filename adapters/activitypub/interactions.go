package activitypub

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// interactionRequests are the activities with which servers ask before somebody interacts with a post (GoToSocial,
// interaction controls): type → the authorization that answers it.
var interactionRequests = map[string]string{
	"LikeRequest": "LikeAuthorization", "ReplyRequest": "ReplyAuthorization", "AnnounceRequest": "AnnounceAuthorization",
}

var interactionContext = []any{document.ActivityStreams, map[string]any{
	"gts":         "https://gotosocial.org/ns#",
	"LikeRequest": "gts:LikeRequest", "ReplyRequest": "gts:ReplyRequest", "AnnounceRequest": "gts:AnnounceRequest",
	"LikeAuthorization": "gts:LikeAuthorization", "ReplyAuthorization": "gts:ReplyAuthorization",
	"AnnounceAuthorization": "gts:AnnounceAuthorization",
	"interactingObject":     map[string]string{"@id": "gts:interactingObject", "@type": "@id"},
	"interactionTarget":     map[string]string{"@id": "gts:interactionTarget", "@type": "@id"},
}}

// interactionRequested answers a server that asks whether somebody may like, answer or share one of our posts. Everybody may
// who can read it; without an answer the reader's server would keep the interaction to itself for ever.
func (i *interactions) interactionRequested(ctx context.Context, in *incoming) (string, error) {
	id, ours := i.replyID(document.Reference(in.activity["object"]))
	if !ours || in.id == "" {
		return outcomeIgnored, nil
	}
	reply, _, err := i.options.Replies.Reply(ctx, id)
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Gone):
		return outcomeIgnored, nil
	case err != nil:
		return "", unavailable(err)
	}

	kind, instrument := interactionRequests[in.kind], document.Reference(in.activity["instrument"])
	answer, name, result := "Reject", "#rejects/", ""
	if document.SameOrigin(instrument, in.actor) && i.authorizes(reply, kind, instrument) {
		answer, name, result = "Accept", "#accepts/", i.authorizationIRI(reply, kind, i.quotedPost(in, reply), instrument)
	}
	return outcomeOf(i.answerRequest(ctx, in, reply, requestAnswer{interactionContext, answer, name, result}))
}

// authorizes reports whether an interaction with a post is allowed. The instrument is the interaction: a Like, a note or an
// Announce. A post that is not for everybody is for its asker's server to like and to answer, and for nobody to share.
func (i *interactions) authorizes(reply exchange.Reply, kind, instrument string) bool {
	if !reply.DeletedAt.IsZero() || !i.isRemote(instrument) {
		return false
	}
	if i.published(reply) {
		return true
	}
	asked, err := readRoute(reply.Route)
	return err == nil && kind != "AnnounceAuthorization" && document.SameOrigin(instrument, asked.Actor)
}

// authorizationIRI is where readers' servers check an authorization. It holds everything that the authorization says, so that
// nothing is stored for a stranger's request.
func (i *interactions) authorizationIRI(reply exchange.Reply, kind, target, instrument string) string {
	query := url.Values{"target": {target}, "interacting": {instrument}}
	return i.actorIRI(reply.Agent) + "/authorizations/" + kind + "?" + query.Encode()
}

// serveAuthorization shows an authorization as long as the post stands.
func (i *interactions) serveAuthorization(w http.ResponseWriter, r *http.Request) {
	agent, found := i.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !found {
		refuse(w, r, i.noAgent(r.Context(), httpserver.Param(r, "agent")))
		return
	}
	if !i.verifier.mayRead(w, r) {
		return
	}

	kind, query := httpserver.Param(r, "kind"), r.URL.Query()
	target, instrument := query.Get("target"), query.Get("interacting")
	id, ours := i.replyID(target)
	known := slices.Contains([]string{"LikeAuthorization", "ReplyAuthorization", "AnnounceAuthorization"}, kind)
	if !ours || !known {
		refuse(w, r, fault.New(fault.NotFound, "no such object"))
		return
	}
	reply, _, err := i.options.Replies.Reply(r.Context(), id)
	switch {
	case fault.Is(err, fault.Gone), err == nil && !reply.DeletedAt.IsZero():
		refuse(w, r, fault.New(fault.Gone, "the post was taken back"))
		return
	case fault.Is(err, fault.NotFound), err == nil && (!strings.EqualFold(reply.Agent, agent.Name) || !i.authorizes(reply, kind, instrument)):
		refuse(w, r, fault.New(fault.NotFound, "no such object"))
		return
	case err != nil:
		refuse(w, r, unavailable(err))
		return
	}
	i.write(w, r, authorizationDocument{
		interactionContext, i.authorizationIRI(reply, kind, target, instrument), kind, i.actorIRI(agent.Name), instrument, target,
	})
}

// authorizationDocument says that an interaction with a post was allowed (FEP-044f; GoToSocial, interaction controls).
type authorizationDocument struct {
	Context      []any  `json:"@context"`
	ID           string `json:"id"`
	Type         string `json:"type"`
	AttributedTo string `json:"attributedTo"`
	Interacting  string `json:"interactingObject"`
	Target       string `json:"interactionTarget"`
}

// requestAnswer is the Accept or Reject of a request to interact.
type requestAnswer struct {
	context []any
	kind    string // Accept or Reject
	name    string // fragment of its id, before the key of the request
	result  string // address of the authorization; empty with Reject
}

// answerRequest tells who asked. The answer to a repeated request has the same id.
func (i *interactions) answerRequest(ctx context.Context, in *incoming, reply exchange.Reply, answer requestAnswer) error {
	type requested struct {
		ID         string `json:"id"`
		Type       string `json:"type"`
		Actor      string `json:"actor"`
		Object     string `json:"object"`
		Instrument string `json:"instrument,omitempty"`
	}
	actor := i.actorIRI(reply.Agent)
	return i.sendLater(ctx, reply.Agent, in.by.actor, struct {
		Context []any     `json:"@context"`
		ID      string    `json:"id"`
		Type    string    `json:"type"`
		Actor   string    `json:"actor"`
		Object  requested `json:"object"`
		Result  string    `json:"result,omitempty"`
		To      []string  `json:"to"`
	}{
		Context: answer.context, ID: actor + answer.name + ownKeyOf(in.id, in.actor), Type: answer.kind, Result: answer.result, Actor: actor,
		To:     []string{in.actor},
		Object: requested{in.id, in.kind, in.actor, i.quotedPost(in, reply), document.Reference(in.activity["instrument"])},
	})
}
