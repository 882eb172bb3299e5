package agents

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// DocumentVersion is the version of Document. It changes only when a program that ignores unknown keys would misread one.
const DocumentVersion = 1

// Document is a turn as programs outside of the server get it: the body of a webhook, the standard input of a command,
// what a pulling program takes.
type Document struct {
	Version                     int                `json:"version"`
	Turn                        DocumentTurn       `json:"turn"`
	Message                     normalized.Message `json:"message"`
	HistoryCacheBreakpointAfter *int               `json:"history_cache_breakpoint_after,omitempty"`

	// SentAt tells a document that somebody recorded and sends again from a new one.
	SentAt identity.Time `json:"sent_at"`
}

// DocumentTurn names the turn. ID is the same in every attempt, and so is IdempotencyKey, which is Turn.Step.
type DocumentTurn struct {
	ID             string `json:"id"`
	Attempt        int    `json:"attempt"`
	Agent          string `json:"agent"`
	IdempotencyKey string `json:"idempotency_key"`

	// AcceptedAt is when the server took the message, and AgeSeconds how long that was before the document was written:
	// hours where the program was down. A program may answer an old message in other words.
	AcceptedAt *identity.Time `json:"accepted_at,omitempty"`
	AgeSeconds int64          `json:"age_seconds,omitempty"`
}

// Document writes the turn for a program, as of now.
func (t Turn) Document() Document {
	document := Document{
		Version: DocumentVersion, Turn: DocumentTurn{ID: t.ID, Attempt: t.Attempt, Agent: t.Agent, IdempotencyKey: t.Step()},
		Message: t.Message, HistoryCacheBreakpointAfter: t.HistoryCacheBreakpointAfter, SentAt: identity.Now(),
	}
	if !t.AcceptedAt.IsZero() {
		accepted := identity.At(t.AcceptedAt)
		document.Turn.AcceptedAt, document.Turn.AgeSeconds = &accepted, max(0, int64(time.Since(t.AcceptedAt)/time.Second))
	}
	return document
}

// Step names what is asked: the turn, and with what it was taken up again. A program that remembers its answer by this
// key would otherwise repeat the question that has just been answered.
func (t Turn) Step() string {
	m := t.Message
	if m.PolicyResolution == nil && m.ReceivedTrace == nil {
		return t.ID
	}

	brought, err := json.Marshal(struct {
		Resolution *policypart.Resolution `json:"policy_resolution"`
		Trace      *normalized.Response   `json:"received_trace"`
	}{m.PolicyResolution, m.ReceivedTrace})
	if err != nil {
		return t.ID // the document cannot be written either
	}

	sum := sha256.Sum256(brought)
	return t.ID + "-" + hex.EncodeToString(sum[:8])
}
