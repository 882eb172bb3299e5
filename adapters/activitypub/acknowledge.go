package activitypub

import (
	"inbox/adapters/activitypub/document"
	"inbox/exchange"
)

// isLike says whether a reply is the mere sign that the question was seen.
func (o *outbox) isLike(reply exchange.Reply) bool {
	return reply.Notice == exchange.NoticeAck && o.options.Likes != nil && o.options.Likes(reply.Agent)
}

// likeActivity says that the agent has seen a note. Its id is one of the actor's own, as servers write it: nobody reads
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
