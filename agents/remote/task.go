package remote

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/internal/clip"
	"inbox/normalized"
)

const (
	maxArtifacts = 64      // of one task
	maxPieces    = 4096    // of all artifacts together; chunks of text join
	maxAnswer    = 8 << 20 // bytes of all of them together
	maxIDBytes   = 512
)

// task is the task there as far as it is known, put together from snapshots and updates within bounds.
type task struct {
	id        a2a.TaskID
	context   string
	status    a2a.TaskStatus
	artifacts []*artifact
	history   []*a2a.Message // of the last snapshot

	size, pieces int
	left         normalized.Left // what is over the bounds
}

// artifact grows by chunks.
type artifact struct {
	id, name, description string
	kind                  string // artifact_type of the message contract
	pieces                []*piece
}

// piece is one part, or the chunks of one text.
type piece struct {
	part *a2a.Part
	text *strings.Builder // nil = no text
}

func (t *task) settled() bool { return t.status.State.Terminal() || t.waits() }

// waits reports whether the task wants something of us first.
func (t *task) waits() bool {
	return t.status.State == a2a.TaskStateInputRequired || t.status.State == a2a.TaskStateAuthRequired
}

// asked names the current question, so that the attempt after a crash can tell it from the next one.
func (t *task) asked() string {
	name := string(t.status.State)
	if t.status.Message != nil {
		name += " " + t.status.Message.ID + " " + sentence("", t.status.Message)
	}
	if t.status.Timestamp != nil {
		name += " " + t.status.Timestamp.UTC().Format("2006-01-02T15:04:05.000")
	}
	return digest(name)
}

// replace takes a snapshot.
func (t *task) replace(s *a2a.Task, rest bool) error {
	if err := t.belongs(s.ID, s.ContextID, rest); err != nil {
		return err
	}

	t.status, t.history = s.Status, s.History
	t.artifacts, t.size, t.pieces, t.left = nil, 0, 0, normalized.Left{}

	for _, snapshot := range s.Artifacts {
		if snapshot == nil {
			return errors.New("the task has an artifact that is none")
		}
		if err := t.put(snapshot, false); err != nil {
			return err
		}
	}

	return nil
}

// belongs checks that an event is about this task, and learns its ids from the first.
func (t *task) belongs(id a2a.TaskID, context string, rest bool) error {
	if t.id != "" && id != t.id {
		return fmt.Errorf("an event is about task %q and not %q", excerpt(string(id)), excerpt(string(t.id)))
	}
	if !usableID(string(id), rest) || context != "" && !usableID(context, false) {
		return fmt.Errorf("the task has the id %q in %q", excerpt(string(id)), excerpt(context))
	}
	t.id, t.context = id, orElse(context, t.context)
	return nil
}

// usableID reports whether an id may be sent back: in the path of a REST request one with a slash would name another place.
func usableID(id string, inPath bool) bool {
	return id != "" && len(id) <= maxIDBytes && !strings.ContainsFunc(id, unicode.IsControl) &&
		(!inPath || !strings.ContainsAny(id, `/\?#%`) && id != "." && id != "..")
}

func (t *task) setStatus(e *a2a.TaskStatusUpdateEvent, rest bool) error {
	if err := t.belongs(e.TaskID, e.ContextID, rest); err != nil {
		return err
	}
	t.status = e.Status
	return nil
}

// grow takes an artifact or a chunk of one.
func (t *task) grow(e *a2a.TaskArtifactUpdateEvent, rest bool) error {
	if err := t.belongs(e.TaskID, e.ContextID, rest); err != nil {
		return err
	}
	if e.Artifact == nil {
		return errors.New("an update has no artifact")
	}
	return t.put(e.Artifact, e.Append)
}

func (t *task) find(id string) *artifact {
	for _, known := range t.artifacts {
		if known.id == id {
			return known
		}
	}
	return nil
}

func (t *task) put(from *a2a.Artifact, appended bool) error {
	known := t.find(string(from.ID))
	switch {
	case known == nil && len(t.artifacts) >= maxArtifacts:
		for _, part := range from.Parts {
			t.leave(part)
		}
		return nil
	case known == nil:
		known = &artifact{id: string(from.ID)}
		t.artifacts = append(t.artifacts, known)
		appended = false
	case !appended:
		known.pieces = nil // its bytes stay counted: who replaces without end is not listened to for ever
	}

	known.name, known.description = orElse(from.Name, known.name), orElse(from.Description, known.description)
	known.kind = orElse(typeOf(from.Metadata), known.kind)
	for i, part := range from.Parts {
		if part == nil {
			return errors.New("an artifact has a part that is none")
		}
		t.add(known, part, appended && i == 0)
	}

	return nil
}

// add puts a part at the end as far as there is room; joins says that a text goes on.
func (t *task) add(to *artifact, part *a2a.Part, joins bool) {
	last := len(to.pieces) - 1
	given, isText := part.Content.(a2a.Text)
	joins = joins && isText && last >= 0 && to.pieces[last].text != nil && continues(to.pieces[last].part, part)
	free := maxAnswer - t.size - sizeOf(part) + len(given)
	if free < 0 || isText && free == 0 || !joins && t.pieces >= maxPieces {
		t.leave(part)
		return
	}

	text := clip.Bytes(string(given), free)
	t.left.Bytes += len(given) - len(text)
	t.size += sizeOf(part) - len(given) + len(text)
	if joins {
		to.pieces[last].text.WriteString(text)
		return
	}

	t.pieces++
	added := &piece{part: part}
	if isText {
		added.text = &strings.Builder{}
		added.text.WriteString(text)
	}
	to.pieces = append(to.pieces, added)
}

// leave counts a part that has no room.
func (t *task) leave(part *a2a.Part) {
	if text := part.Text(); text != "" {
		t.left.Bytes += len(text)
		return
	}
	t.left.Parts++
}

// continues reports whether an appended text is a chunk of the text before it: words extend words, and a document that was sent as text is
// extended by what names the same document. Words never become content of a file.
func continues(before, chunk *a2a.Part) bool {
	if !asFile(before) {
		return !asFile(chunk) && (chunk.MediaType == "" || baseType(chunk.MediaType) == baseType(before.MediaType)) && citationIn(chunk.Metadata) == nil
	}
	return asFile(chunk) && chunk.Filename == before.Filename && chunk.MediaType == before.MediaType
}

// whole returns the part as it stands.
func (p *piece) whole() *a2a.Part {
	if p.text == nil {
		return p.part
	}
	whole := *p.part
	whole.Content = a2a.Text(p.text.String())
	return &whole
}

// sizeOf counts what a part weighs here, not less than its own frame.
func sizeOf(part *a2a.Part) int {
	return 64 + len(part.Text()) + len(part.Raw()) + len(part.URL()) + len(part.Filename)
}
