package activitypub

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"strings"

	"github.com/google/uuid"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/fault"
)

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

// putOffFollow keeps a Follow for the operator or rejects it; false = it is to be accepted. Who follows already is accepted
// again.
func (f *follows) putOffFollow(ctx context.Context, agent string, actor *remoteActor, entry follower) (bool, error) {
	policy := f.followPolicy(agent)
	if policy == FollowAccept {
		return false, nil
	}
	_, follows, err := f.options.State.Get(ctx, followerNamespace+agent, actor.ID)
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
		if err := f.putJSON(ctx, followerNamespace+job.Agent, job.Actor, entry); err != nil {
			return fault.RetryIn(0, "our own store did not answer", err)
		}
		if entry.Follow != "" {
			if err := f.putJSON(ctx, followNamespace, deedKey(entry.Follow, job.Actor), followed{job.Agent, job.Actor}); err != nil {
				return fault.RetryIn(0, "our own store did not answer", err)
			}
		}
	}
	if err := f.answerFollow(ctx, job.Agent, job.Inbox, entry.Follow, actor); err != nil {
		return fault.RetryIn(0, "the answer could not be queued", err)
	}
	return f.options.State.Delete(ctx, PendingNamespace+job.Agent, job.Actor)
}

// onlyFollowers says why a note of somebody who does not follow the agent is not answered; empty = it is.
func (f *follows) onlyFollowers(ctx context.Context, actor *remoteActor, agent exchange.AgentProfile) (string, error) {
	if f.options.FollowersOnly == nil || !f.options.FollowersOnly(agent.Name) {
		return "", nil
	}
	_, follows, err := f.options.State.Get(ctx, followerNamespace+agent.Name, actor.ID)
	if err != nil || follows {
		return "", err
	}
	return "the sender does not follow this agent, which answers its followers alone", nil
}

// Field is a line of an actor's profile (schema.org PropertyValue). A value that is a web or mail address becomes a link.
type Field struct{ Name, Value string }

type propertyValue struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"` // HTML
}

var fieldContext = map[string]any{
	"schema": "http://schema.org#", "PropertyValue": "schema:PropertyValue", "value": "schema:value",
}

// profileFields puts the operator's lines onto an actor.
func (p *profiles) profileFields(actor *actorDocument) {
	if len(p.options.Fields) == 0 {
		return
	}
	actor.Context = append(append([]any{}, actor.Context...), fieldContext)
	for _, field := range p.options.Fields {
		value := html.EscapeString(field.Value)
		switch {
		case strings.HasPrefix(field.Value, "https://"), strings.HasPrefix(field.Value, "http://"):
			value = `<a href="` + value + `" rel="nofollow noopener" target="_blank">` + html.EscapeString(strings.SplitN(field.Value, "://", 2)[1]) + `</a>`
		case strings.Contains(field.Value, "@") && !strings.HasPrefix(field.Value, "@"):
			value = `<a href="mailto:` + value + `">` + value + `</a>`
		}
		actor.Attachment = append(actor.Attachment, propertyValue{"PropertyValue", field.Name, value})
	}
}
