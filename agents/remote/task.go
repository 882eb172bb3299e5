package remote

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/a2aproject/a2a-go/v2/a2a"
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
}

// artifact grows by chunks.
type artifact struct {
	id, name, description string
	pieces                []*piece
}

// piece is one part, or the chunks of one text.
type piece struct {
	part *a2a.Part
	text *strings.Builder // nil = no text
}

var errTooMuch = errors.New("the answer is over the limit")

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
	t.artifacts, t.size, t.pieces = nil, 0, 0
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
