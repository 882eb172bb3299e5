package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/normalized"
)

const (
	partialPage     = 500
	maxPartialBytes = 4 << 20 // of text of an unfinished answer in a snapshot: the limit of a whole answer's text
)

// partial is the text of an answer that is not whole, as the events of its turn have it so far: what subscribers were told,
// put together as they put it together (A2A 1.0, section 4.2.2).
type partial struct {
	pieces []partialPiece
	size   int

	seq  int64    // of the last event in it; who goes on reads behind it
	sent streamed // the same text as a follower remembers it
	open bool     // there is text, so that more of it is appended
	mime string   // of the text part that grows
}

type partialPiece struct {
	mime string
	text *strings.Builder
}

// partial reads what a turn without a whole answer has said so far. It stops before a change of state that the row of the
// turn does not show yet, so that row and text belong together.
func (s *tasks) partial(ctx context.Context, turn exchange.TurnRecord) (*partial, error) {
	g := &partial{mime: normalized.MIMEPlain}
	if stateOf(turn) == a2a.TaskStateSubmitted || exchange.Terminal(turn.State) && stateOf(turn) == a2a.TaskStateCompleted {
		return g, nil
	}
	for {
		page, err := s.options.Turns.Events(ctx, turn.ID, g.seq, partialPage)
		if err != nil {
			return nil, err
		}

		for _, event := range page {
			if g.ends(event, turn.UpdatedAt) {
				return g, nil
			}

			g.seq = event.Seq
			switch event.Kind {
			case exchange.EventRestarted:
				g.reset()
			case exchange.EventDelta:
				text, err := textOfDelta(event, &g.mime)
				if err != nil {
					return nil, err
				}
				g.add(text)
			}
		}

		if len(page) < partialPage {
			return g, nil
		}
	}
}

func (g *partial) ends(event exchange.Event, since time.Time) bool {
	state, isState := strings.CutPrefix(event.Kind, "turn.")
	return isState && event.Kind != exchange.EventRestarted && state != "" && event.At.After(since)
}

// reset forgets the text: a run that ended without an answer is void.
func (g *partial) reset() {
	*g = partial{seq: g.seq, mime: normalized.MIMEPlain}
}

// textOfDelta is the text that a delta adds; mime becomes that of the part that it belongs to.
func textOfDelta(event exchange.Event, mime *string) (string, error) {
	var delta normalized.Delta
	if err := json.Unmarshal(event.Body, &delta); err != nil {
		return "", fmt.Errorf("read delta %d of turn %s: %w", event.Seq, event.TurnID, err)
	}

	switch delta.Kind {
	case normalized.DeltaPartBegin:
		if delta.Part != nil && delta.Part.Kind == normalized.PartText {
			*mime = delta.Part.MIME
			return delta.Part.Content, nil
		}
	case normalized.DeltaPartEnd:
		*mime = normalized.MIMEPlain
	}

	return delta.Text, nil
}

func (g *partial) add(text string) {
	if text == "" {
		return
	}

	g.sent.add(text)
	g.open = true

	if g.size += len(text); g.size > maxPartialBytes {
		return
	}

	if last := len(g.pieces) - 1; last < 0 || g.pieces[last].mime != g.mime {
		g.pieces = append(g.pieces, partialPiece{g.mime, &strings.Builder{}})
	}
	g.pieces[len(g.pieces)-1].text.WriteString(text)
}

// artifact is the text so far as the artifact that streams name; nil where there is none.
func (g *partial) artifact(turnID string) *a2a.Artifact {
	if len(g.pieces) == 0 {
		return nil
	}
	artifact := &a2a.Artifact{ID: answerArtifact(turnID)}
	for _, piece := range g.pieces {
		artifact.Parts = append(artifact.Parts, &a2a.Part{Content: a2a.Text(piece.text.String()), MediaType: piece.mime})
	}
	return artifact
}
