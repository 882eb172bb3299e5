package activitypub

import (
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
)

var _ exchange.Acknowledger = (*Adapter)(nil)

// AckAfter tells an asker at the time that the operator wants: a note or a like is seen when it comes.
func (a *Adapter) AckAfter(wanted time.Duration) time.Duration { return wanted }

// isLike says whether a reply is the mere sign that the question was seen.
func (a *Adapter) isLike(reply exchange.Reply) bool {
	return reply.Notice == exchange.NoticeAck && a.options.Likes != nil && a.options.Likes(reply.Agent)
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

func (a *Adapter) like(reply exchange.Reply) ([]byte, error) {
	asked, err := readRoute(reply.Route)
	if err != nil {
		return nil, err
	}
	actor := a.actorIRI(reply.Agent)
	return document.Encode(likeActivity{
		Context: document.ActivityStreams, ID: actor + "#likes/" + reply.ID, Type: "Like", Actor: actor, Object: asked.Note,
		To: []string{asked.Actor},
	})
}
