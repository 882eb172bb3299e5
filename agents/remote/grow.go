package remote

import (
	"errors"
	"fmt"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

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
		return fmt.Errorf("%w: more than %d artifacts", errTooMuch, maxArtifacts)
	case known == nil:
		known = &artifact{id: string(from.ID)}
		t.artifacts = append(t.artifacts, known)
		appended = false
	case !appended:
		known.pieces = nil // its bytes stay counted: who replaces without end is not listened to for ever
	}
	known.name, known.description = orElse(from.Name, known.name), orElse(from.Description, known.description)
	for i, part := range from.Parts {
		if part == nil {
			return errors.New("an artifact has a part that is none")
		}
		if err := t.add(known, part, appended && i == 0); err != nil {
			return err
		}
	}
	return nil
}

// add puts a part at the end; joins says that a text goes on.
func (t *task) add(to *artifact, part *a2a.Part, joins bool) error {
	t.size += sizeOf(part)
	if t.size > maxAnswer {
		return fmt.Errorf("%w of %d bytes", errTooMuch, maxAnswer)
	}
	text, isText := part.Content.(a2a.Text)
	if last := len(to.pieces) - 1; joins && isText && last >= 0 && to.pieces[last].text != nil {
		to.pieces[last].text.WriteString(string(text))
		return nil
	}
	if t.pieces++; t.pieces > maxPieces {
		return fmt.Errorf("%w: more than %d parts", errTooMuch, maxPieces)
	}
	added := &piece{part: part}
	if isText {
		added.text = &strings.Builder{}
		added.text.WriteString(string(text))
	}
	to.pieces = append(to.pieces, added)
	return nil
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
