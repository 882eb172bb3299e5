package activitypub

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// from: store, fetch
var ancestorCount = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_ancestors_total", Help: "Notes that were taken into the history of a thread entered late, by where they were.",
}, []string{"from"})

// The budget of one walk towards the start of a thread.
const (
	maxAncestorDepth   = 20
	maxAncestorFetches = 20
	maxAncestorsOfHost = 10
	maxAncestorBytes   = 256 << 10
	ancestorTimeout    = 5 * time.Second
	ancestorsTimeout   = 20 * time.Second
)

// errBudget ends a walk.
var errBudget = errors.New("the budget of the walk is spent")

// Late reports whether the note answers one that was not here when it came.
func (n *notes) Late(turn exchange.TurnRecord) bool {
	asked, err := readRoute(turn.Route)
	return err == nil && asked.Late
}

// Ancestors walks from a note towards the start of its thread: what is stored here first, then what other servers show.
// It ends at a note that is in the turn's own thread, at one that may not be shown, and where a server refuses.
func (n *notes) Ancestors(ctx context.Context, turn exchange.TurnRecord) ([]normalized.HistoricalMessage, error) {
	asked, err := readRoute(turn.Route)
	if err != nil {
		return nil, fault.GiveUp("the stored question cannot be read", err)
	}

	agent, found := n.options.Directory.Agent(turn.Agent)
	if !found {
		return nil, nil
	}

	ctx, cancel := context.WithTimeout(ctx, ancestorsTimeout)
	defer cancel()
	w := walk{notes: n, agent: agent, turn: turn, asked: asked, hosts: map[string]int{}}
	next := turn.Message.InReplyTo
	visited := map[string]bool{asked.Note: true, turn.Message.ID: true}
	for len(w.found) < maxAncestorDepth && next != "" && !visited[next] && ctx.Err() == nil {
		visited[next] = true
		if next, err = w.step(ctx, next); err != nil {
			break // what was found so far is worth having
		}
	}

	slices.Reverse(w.found)
	return w.found, nil
}

// walk is one way up a thread.
type walk struct {
	notes   *notes
	agent   exchange.AgentProfile
	turn    exchange.TurnRecord
	asked   route
	fetches int
	hosts   map[string]int
	found   []normalized.HistoricalMessage
}

// step takes one note and returns the one that it answers; empty at the end.
func (w *walk) step(ctx context.Context, iri string) (next string, err error) {
	if id, ours := w.notes.replyID(iri); ours {
		return w.ownNote(ctx, id)
	}
	entry, found, err := w.notes.parent(ctx, w.turn.Agent, w.asked.Actor, iri)
	if err != nil {
		return "", err
	}
	if found {
		return w.stored(entry), nil
	}
	return w.foreign(ctx, iri)
}

// ownNote takes an answer of this agent in another thread.
func (w *walk) ownNote(ctx context.Context, id string) (string, error) {
	reply, _, err := w.notes.options.Replies.Reply(ctx, id)
	if err != nil || reply.Agent != w.turn.Agent || reply.Message.ThreadID == w.turn.ThreadID {
		return "", err
	}

	asked, err := readRoute(reply.Route)
	if err != nil || !isNote(reply) || !w.mayShowStored(w.notes.replyVisibility(reply, asked), asked.Actor) {
		return "", err
	}

	w.add("store", normalized.HistoricalMessage{
		ID: w.notes.noteIRI(reply.ID), Role: normalized.RoleAssistant, Parts: reply.Response.Parts, Timestamp: identity.At(reply.CreatedAt),
		Sender: normalized.Sender{Address: identity.Stated(w.agent.Address), AuthMethod: normalized.AuthNone},
	})
	return asked.Note, nil
}

// stored takes a note that the agent got in another thread. One of this thread ends the walk: the history has it.
func (w *walk) stored(entry exchange.ThreadEntry) string {
	message := entry.Message
	asked, err := readRoute(entry.Route)
	if err != nil || entry.ThreadID == w.turn.ThreadID || len(message.Parts) == 0 || !w.mayShowStored(asked.Visibility, asked.Actor) {
		return ""
	}

	w.add("store", normalized.HistoricalMessage{
		ID: message.ID, Role: normalized.RoleUser, Sender: message.Sender, Parts: message.Parts, Timestamp: message.ReceivedAt,
	})
	return message.InReplyTo
}

// mayShowStored keeps private talk out of public threads and out of other people's.
func (w *walk) mayShowStored(visibility, actor string) bool {
	return isOpen(visibility) || !isOpen(w.asked.Visibility) && actor == w.asked.Actor
}

// foreign fetches a note from its own server.
func (w *walk) foreign(ctx context.Context, iri string) (string, error) {
	got, err := w.fetch(ctx, iri)
	if err != nil {
		return "", err
	}

	author := document.Author(got.doc)
	q, err := w.notes.readNote(got.doc, got.doc, author)
	if err != nil || q == nil || author == "" {
		return "", err // by someone of another server, or nothing that is said
	}

	q.decide("")
	parts := w.notes.parts(q, w.agent)
	if !w.mayShow(q) || len(parts) == 0 {
		return "", nil
	}

	w.add("fetch", normalized.HistoricalMessage{
		ID: q.note, Role: normalized.RoleUser, Parts: parts, Timestamp: identity.At(w.written(q)), Sender: w.author(ctx, author),
	})
	return q.inReplyTo, nil
}

// mayShow asks who may read a note: everyone; or, in a private conversation, its sender, by whom or to whom and us it is.
func (w *walk) mayShow(q *inboundNote) bool {
	switch {
	case isOpen(q.visibility):
		return true
	case isOpen(w.asked.Visibility):
		return false
	case q.actor == w.asked.Actor:
		return true
	}

	return q.audience.Includes(w.asked.Actor) && q.audience.Includes(w.notes.actorIRI(w.agent.Name))
}

// written is when a note was written. No one writes in the future.
func (w *walk) written(q *inboundNote) time.Time {
	at, isTime := document.Time(q.object["published"])
	if now := w.notes.now(); !isTime || at.After(now) {
		return now
	}
	return at
}

// author describes who wrote a fetched note. Nothing of it is verified: a server showed it, and no proof of its author came with it.
// What other notes call an author says nothing.
func (w *walk) author(ctx context.Context, actor string) normalized.Sender {
	return normalized.Sender{Address: identity.Stated(w.notes.actors.speaker(ctx, actor)), AuthMethod: normalized.AuthNone}
}

func (w *walk) add(from string, message normalized.HistoricalMessage) {
	ancestorCount.WithLabelValues(from).Inc()
	w.found = append(w.found, message)
}

// fetch gets one document within the budget. In a private conversation the agent signs: the notes of one may be for it alone.
func (w *walk) fetch(ctx context.Context, iri string) (fetched, error) {
	host := document.HostOf(iri)
	if !w.notes.isRemote(iri) || !w.notes.admits(host) || !w.spend(host) {
		return fetched{}, errBudget
	}

	ctx, cancel := context.WithTimeout(ctx, ancestorTimeout)
	defer cancel()
	leave, err := w.notes.actors.enter(ctx, host)
	if err != nil {
		return fetched{}, err
	}
	defer leave()
	how := reading{limit: maxAncestorBytes, further: func() bool { return w.spend(host) }}
	if !isOpen(w.asked.Visibility) {
		how.as = w.agent.Name
	}
	return w.notes.fetcher.fetchExact(ctx, iri, how)
}

// spend takes one request to a host out of the budget.
func (w *walk) spend(host string) bool {
	if w.fetches >= maxAncestorFetches || w.hosts[host] >= maxAncestorsOfHost {
		return false
	}
	w.fetches++
	w.hosts[host]++
	return true
}
