package remote

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/agents/upstream"
	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

const (
	maxResubscribes = 5 // of one turn; after that the task is polled
	maxBlindPolls   = 8 // in a row that fail
	maxSamePolls    = 5 // that show the question which the message answers
)

// follow waits for the end of a task: by its stream, taken up again where it was cut, and else by looking at it.
func (x *exchange) follow(ctx context.Context) error {
	pause := x.agent.options.PollInterval
	for tries := 0; !x.done() && x.peer.streaming && !x.long && tries < maxResubscribes; tries++ {
		if tries > 0 && clock.Sleep(ctx, pause) != nil {
			return upstream.Interrupted(ctx, ctx.Err())
		}

		if tries > 0 {
			pause *= 2
		}

		offered, err := x.subscribe(ctx)
		if err != nil {
			return err
		}
		if !offered {
			break
		}
	}

	if !x.done() {
		return x.poll(ctx)
	}
	if x.cut && x.said == nil {
		return x.complete(ctx)
	}

	return nil
}

// subscribe takes the stream of the task up again. offered is false where that cannot be done.
func (x *exchange) subscribe(ctx context.Context) (offered bool, err error) {
	recoveries.WithLabelValues("resubscribed").Inc()
	x.cut = true
	watchedCtx, seen := watched(ctx)
	events := x.wire.transport.SubscribeToTask(watchedCtx, x.wire.params(), &a2a.SubscribeToTaskRequest{Tenant: x.peer.tenant, ID: x.task.id})
	for event, err := range events {
		switch {
		case err != nil && (noSuchThing(err) || notOffered(seen, err) || errors.Is(err, a2a.ErrInvalidParams)):
			return false, nil
		case err != nil:
			return true, x.lasting(ctx, seen, err)
		}
		if err := x.take(ctx, event); err != nil || x.done() {
			return true, err
		}
	}

	return true, nil
}

// complete reads the whole task once more, because a part of its updates may have been missed. Where that fails, what
// has come has to do.
func (x *exchange) complete(ctx context.Context) error {
	found, _, err := x.look(ctx, x.task.id)
	if err != nil || found.Status.State != x.task.status.State {
		return nil //nolint:nilerr // see above
	}
	return x.take(ctx, found)
}

// poll looks at the task again and again, less and less often.
func (x *exchange) poll(ctx context.Context) error {
	recoveries.WithLabelValues("polled").Inc()
	first, longest := true, 20*x.agent.options.PollInterval
	blind, same := 0, 0
	for pause := x.agent.options.PollInterval; !x.done(); pause = min(2*pause, longest) {
		if clock.Sleep(ctx, pause) != nil {
			return upstream.Interrupted(ctx, ctx.Err())
		}

		found, seen, err := x.look(ctx, x.task.id)
		switch {
		case err == nil:
			blind = 0
			if err := x.take(ctx, found); err != nil {
				return err
			}
			if same++; same >= maxSamePolls && x.task.waits() {
				x.asked = "" // it asks the very same again
			}
		case first && (noSuchThing(err) || notOffered(seen, err)) && x.long:
			return upstream.NotUsable(errTooLong)
		case first && (noSuchThing(err) || notOffered(seen, err)):
			return x.block(ctx)
		case passing(seen, err) && blind < maxBlindPolls:
			blind++
		default:
			return failure(ctx, seen, err)
		}

		first = false
	}

	return nil
}

// passing reports whether the failure of a look may be over at the next one.
func passing(seen *sighting, err error) bool {
	if isPermanent(err) || errors.Is(err, safehttp.ErrRefused) || errors.Is(seen.cut, safehttp.ErrTooLarge) {
		return false
	}
	return seen.status == 0 || seen.status == http.StatusTooManyRequests || seen.status >= http.StatusInternalServerError ||
		seen.cut != nil || errors.Is(err, a2a.ErrInternalError) || errors.Is(err, a2a.ErrServerError)
}

func isPermanent(err error) bool {
	known, ok := errors.AsType[*fault.Fault](err)
	return ok && known.Permanent
}

// block asks an agent that returns tasks but does not show them: the same message again, for the end this time.
func (x *exchange) block(ctx context.Context) error {
	recoveries.WithLabelValues("repeated").Inc()
	message, err := x.message(ctx)
	if err != nil {
		return err
	}

	x.task = task{}
	seen, err := x.ask(ctx, message, false)
	switch {
	case errors.Is(err, errStopped):
		return err
	case err != nil:
		return failure(ctx, seen, err)
	case !x.done():
		return upstream.Overdue(errors.New("the agent returns tasks, shows none and does not wait for their end"))
	}

	return nil
}

// done reports whether the answer is there.
func (x *exchange) done() bool {
	return x.said != nil || x.task.settled() && (!x.task.waits() || x.asked == "" || x.asked != x.task.asked())
}

// take handles whatever the other agent says, from a stream, an answer or a look at the task.
func (x *exchange) take(ctx context.Context, event a2a.Event) error {
	var err error
	switch e := event.(type) {
	case *a2a.Message:
		err = x.hear(e)
	case *a2a.Task:
		if e == nil {
			return upstream.NotUsable(errors.New("an event is empty"))
		}
		err = x.task.replace(e, x.peer.rest)
	case *a2a.TaskStatusUpdateEvent:
		if err = x.task.setStatus(e, x.peer.rest); err == nil && !x.task.settled() {
			x.preview.status(e.Status.Message)
		}
	case *a2a.TaskArtifactUpdateEvent:
		if err = x.task.grow(e, x.peer.rest); err == nil {
			x.preview.artifact(e, x.peer.card.textMIME())
		}
	default:
		err = errors.New("an event is of no known kind")
	}

	if err != nil {
		return upstream.NotUsable(err)
	}
	if err := x.note(ctx); err != nil {
		return err
	}
	if !x.preview.flush(x.emit) {
		return errStopped
	}

	return nil
}

func (x *exchange) hear(message *a2a.Message) error {
	if message == nil || message.ContextID != "" && !usableID(message.ContextID, false) {
		return errors.New("the answer is no message")
	}
	x.said = message
	return nil
}

// note keeps the id of the task as soon as it is known: the next attempt goes on with it instead of asking twice.
func (x *exchange) note(ctx context.Context) error {
	if x.noted || x.task.id == "" {
		return nil
	}
	x.noted = true
	return x.agent.keep(ctx, x.agent.turnKey(x.turn, x.id), progress{Task: string(x.task.id), Context: x.task.context}, turnLife)
}

const (
	maxPreview      = 256 << 10 // bytes of text that are shown while the answer grows
	maxPreviewParts = 32
)

// preview shows the answer while it grows. It is replaced by the whole answer in the end, so it may leave out what is
// late, large or replaced.
type preview struct {
	deltas  []normalized.Delta
	growing string          // id of the artifact whose text is the open part
	open    *a2a.Part       // the part that its next text may go on with; nil = none
	begun   map[string]bool // artifacts shown so far
	bytes   int
	parts   int
}

// status shows what the agent says while it works, before it begins its answer.
func (p *preview) status(message *a2a.Message) {
	if message == nil || p.growing != "" {
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

// artifact shows new text of the answer, in the parts that the whole answer will have.
func (p *preview) artifact(e *a2a.TaskArtifactUpdateEvent, mime string) {
	id := "artifact " + string(e.Artifact.ID)
	if p.begun[id] && !e.Append || p.begun[id] && p.growing != id {
		return // replaced, or going on behind something else
	}
	for i, part := range unchunked(e.Artifact.Parts, mime) {
		text := partText(part)
		joins := e.Append && i == 0 && p.growing == id && p.open != nil && continues(p.open, part)
		switch {
		case joins:
			p.bytes += len(text)
			p.deltas = append(p.deltas, p.limited(normalized.Delta{Kind: normalized.DeltaText, Text: text})...)
		case text == "" || asFile(part):
			p.open = nil
		default:
			p.begin(id, textMIME(part, mime), text)
			p.open = part
		}
	}
	if count := len(e.Artifact.Parts); count > 1 { // what is appended goes on with the last of them
		if p.open = e.Artifact.Parts[count-1]; partText(p.open) == "" || asFile(p.open) {
			p.open = nil
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
	p.growing, p.open = id, nil
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
