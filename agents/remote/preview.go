package remote

import (
	"strings"
	"unicode"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/normalized"
)

const (
	maxPreview      = 256 << 10 // bytes of text that are shown while the answer grows
	maxPreviewParts = 32
)

// preview shows the answer while it grows. It is replaced by the whole answer in the end, so it may leave out what is
// late, large or replaced.
type preview struct {
	deltas  []normalized.Delta
	growing string          // id of the artifact whose text is the open part
	begun   map[string]bool // artifacts shown so far
	bytes   int
	parts   int
}

// status shows what the agent says while it works.
func (p *preview) status(message *a2a.Message) {
	if message == nil {
		return
	}
	for _, part := range message.Parts {
		if text := partText(part); strings.TrimSpace(text) != "" {
			p.begin("", normalized.MIMEPlain, text)
			p.deltas = append(p.deltas, p.limited(normalized.Delta{Kind: normalized.DeltaPartEnd})...)
			p.growing = ""
		}
	}
}

// artifact shows new text of the answer.
func (p *preview) artifact(e *a2a.TaskArtifactUpdateEvent, mime string) {
	id := "artifact " + string(e.Artifact.ID)
	if p.begun[id] && !e.Append || p.begun[id] && p.growing != id {
		return // replaced, or going on behind something else
	}
	for _, part := range e.Artifact.Parts {
		text := partText(part)
		switch {
		case text == "" || asFile(part):
		case p.growing == id:
			p.bytes += len(text)
			p.deltas = append(p.deltas, p.limited(normalized.Delta{Kind: normalized.DeltaText, Text: text})...)
		default:
			p.begin(id, textMIME(part, mime), text)
		}
	}
}

func (p *preview) begin(id, mime, text string) {
	if p.begun == nil {
		p.begun = map[string]bool{}
	}
	p.bytes += len(text)
	p.parts++
	part := normalized.Part{Kind: normalized.PartText, MIME: mime, Content: text}
	p.deltas = append(p.deltas, p.limited(normalized.Delta{Kind: normalized.DeltaPartBegin, Part: &part})...)
	if len(p.begun) < maxArtifacts {
		p.begun[id] = true
	}
	p.growing = id
}

// limited lets nothing through any more once the preview is long enough.
func (p *preview) limited(delta normalized.Delta) []normalized.Delta {
	if p.bytes > maxPreview || p.parts > maxPreviewParts {
		return nil
	}
	return []normalized.Delta{delta}
}

// flush hands over what is new; false = the engine wants no more.
func (p *preview) flush(emit func(normalized.Delta) bool) bool {
	for _, delta := range p.deltas {
		if !emit(delta) {
			return false
		}
	}
	p.deltas = nil
	return true
}

// partText returns text without the control characters that the contract forbids; white space stays, it may be a chunk.
func partText(part *a2a.Part) string {
	if part == nil {
		return ""
	}
	return strings.Map(func(char rune) rune {
		if unicode.IsControl(char) && char != '\n' && char != '\t' {
			return -1
		}
		return char
	}, strings.ToValidUTF8(part.Text(), ""))
}
