package agents

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"inbox/identity"
	"inbox/internal/clip"
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

	// NotAddressed lists whom the last answer in the conversation named in its text without addressing them.
	NotAddressed []string `json:"not_addressed,omitempty"`

	// Handover says that an operator answered in the agent's place before this turn, and handed back.
	Handover *DocumentHandover `json:"handover,omitempty"`

	// Files are the larger files of the message on this machine, for programs that run on it.
	Files []DocumentFile `json:"files,omitempty"`

	// SentAt tells a document that someone recorded and sends again from a new one.
	SentAt identity.Time `json:"sent_at"`
}

// DocumentFile is a file of the message on the disk, as long as the program runs.
type DocumentFile struct {
	Digest string `json:"digest"` // the bytes_ref that refers to it
	Path   string `json:"path"`
	Name   string `json:"name,omitempty"` // as the sender calls it
	MIME   string `json:"mime,omitempty"`
	Size   int64  `json:"size"`
}

// DocumentHandover is a Handover as programs get it.
type DocumentHandover struct {
	Since identity.Time `json:"since"`
	Until identity.Time `json:"until"`
	Note  string        `json:"note,omitempty"` // of the operator for the agent, not for the asker
}

// maxFileName bounds the name of a file in bytes.
const maxFileName = 200

// FileName makes a plain name of what a stranger calls a file: it must not steer where a program keeps it. Empty when nothing is left.
func FileName(name string) string {
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || strings.ContainsRune(`"/<>|:*?`, r) { // marks that turn the direction of a text are not graphic
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "_"))

	if name = clip.Bytes(strings.Trim(name, ". "), maxFileName); name == "_" {
		return ""
	}
	return name
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

// Document writes the turn for a program, as of now. Files that do not travel inside of it, and the native original, have addresses
// that open them for a while; history does not, so that it stays the same from turn to turn.
func (t Turn) Document() Document {
	document := Document{
		Version: DocumentVersion, Turn: DocumentTurn{ID: t.ID, Attempt: t.Attempt, Agent: t.Agent, IdempotencyKey: t.Step()},
		Message: t.addressed(), HistoryCacheBreakpointAfter: t.HistoryCacheBreakpointAfter, NotAddressed: t.NotAddressed, SentAt: identity.Now(),
	}
	if h := t.Handover; h != nil {
		document.Handover = &DocumentHandover{identity.At(h.Since), identity.At(h.Until), h.Note}
	}
	if !t.AcceptedAt.IsZero() {
		accepted := identity.At(t.AcceptedAt)
		document.Turn.AcceptedAt, document.Turn.AgeSeconds = &accepted, max(0, int64(time.Since(t.AcceptedAt)/time.Second))
	}
	return document
}

// addressed returns the message with addresses of what it refers to by digest.
func (t Turn) addressed() normalized.Message {
	message := t.Message
	if t.Files == nil {
		return message
	}

	if digest, is := strings.CutPrefix(message.Raw.Ref, "sha256:"); is {
		message.Raw.URL, _ = t.Files.Address(digest)
	}

	message.Parts = t.addressedParts(message.Parts)
	if message.ReceivedTrace != nil {
		trace := *message.ReceivedTrace
		trace.Parts = t.addressedParts(trace.Parts)
		message.ReceivedTrace = &trace
	}

	return message
}

func (t Turn) addressedParts(parts []normalized.Part) []normalized.Part {
	parts = slices.Clone(parts)
	for i, part := range parts {
		if part.BytesRef == nil || part.BytesRef.Kind != normalized.BytesContentAddressed || part.BytesRef.URL != "" {
			continue
		}
		reference := *part.BytesRef
		if address, expires := t.Files.Address(reference.Digest); address != "" {
			until := identity.At(expires)
			reference.URL, reference.ExpiresAt = address, &until
		}
		parts[i].BytesRef = &reference
	}
	return parts
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
