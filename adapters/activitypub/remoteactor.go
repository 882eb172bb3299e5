package activitypub

import (
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
)

// remoteActor is what is kept of an actor of another server.
type remoteActor struct {
	document.Actor
	NoBot     bool      `json:"no_bot,omitempty"` // the profile asks programs not to write unasked
	FetchedAt time.Time `json:"fetched_at"`
	Until     time.Time `json:"until,omitzero"`   // the actor was changed: what is kept holds no longer than this
	GoneAt    time.Time `json:"gone_at,omitzero"` // since when its server says that it does not exist
}

// freshUntil is when the actor is to be fetched again.
func (r *remoteActor) freshUntil() time.Time {
	end := r.FetchedAt.Add(keyLife)
	if !r.Until.IsZero() && r.Until.Before(end) {
		return r.Until
	}
	return end
}

func (r *remoteActor) fresh(now time.Time) bool { return now.Before(r.freshUntil()) }

// readActor reads the actor document that was fetched at an instant.
func readActor(doc document.Object, now time.Time) (*remoteActor, error) {
	described, err := document.ReadActor(doc)
	if err != nil {
		return nil, err
	}
	return &remoteActor{Actor: described, NoBot: notetext.AsksNoBots(document.Text(doc, "summary")), FetchedAt: now.UTC()}, nil
}
