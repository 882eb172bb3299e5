package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

var (
	streams = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "inbox_chat_streams_open", Help: "Streams of growing answers that clients hold open.",
	})
	dropped = promauto.NewCounter(prometheus.CounterOpts{
		Name: "inbox_chat_readers_dropped_total", Help: "Readers of streams that took too long for a frame.",
	})
)

// frames writes the deltas and the end of a run in the form of one surface.
type frames interface {
	begin(found run) []event                       // before everything else
	delta(found run, delta contract.Delta) []event // one step of the answer
	end(found run, steps []exchange.Event) []event // the last ones, with what the agent did; the turn is settled
}

// choosing are frames whose reader executes not every tool.
type choosing interface {
	// over reports whether the stream of a run ends that waits for tools of the asker.
	over(found run) bool
}

// breaking are frames that tell a reader that the server cuts its stream off.
// Last is the id of the last event that the reader has.
type breaking interface {
	broken(found run, last string) []event
}

// appending are frames whose reader can only append: it knows no DeltaReset.
type appending interface {
	appends()
}

// event is one server-sent event.
type event struct {
	name string // empty = message
	data any    // encoded as JSON; a string of its own is written as it is
}

// stream follows the events of a turn until it is settled. The headers leave at once, so that the reader knows that its
// message is kept. Without a reader the stream ends and the run goes on.
func (rs *runs) stream(w http.ResponseWriter, r *http.Request, found run, form frames) error {
	streams.Inc()
	defer streams.Dec()
	ctx, stop := httpserver.WhileServing(r.Context())
	defer stop()
	out := openEvents(ctx, w, rs.options, stop)
	defer out.out.Close()
	f := follower{runs: rs, out: out, form: form, found: found, last: eventID(found.turn.ID, max(found.after, found.from))}
	_, appends := form.(appending)
	f.progress.resets = !appends
	out.write("", form.begin(found)...)
	err := f.follow(ctx)
	if err != nil && ctx.Err() == nil {
		rs.options.Logger.ErrorContext(ctx, "a chat stream broke", "turn", found.turn.ID, "error", err)
	}
	if told, is := form.(breaking); is && err != nil && r.Context().Err() == nil {
		out.write("", told.broken(found, f.last)...)
	}

	return nil
}

// follower turns the events of one turn into frames for one reader.
type follower struct {
	runs     *runs
	out      eventWriter
	form     frames
	found    run
	progress progress
	steps    []exchange.Event // what the agent did, for the usage at the end
	last     string           // id of the last event that was written
}

func (f *follower) follow(ctx context.Context) error {
	for one, err := range f.runs.options.Runs.Follow(ctx, f.found.turn.ID, f.found.from) {
		if err != nil {
			return err
		}
		over, err := f.event(ctx, one)
		if over || err != nil {
			return err
		}
	}
	return nil
}

// event writes what a row means for the reader and reports whether the stream is over. Rows that the reader has already are
// read again, because what follows depends on them.
func (f *follower) event(ctx context.Context, one exchange.Event) (over bool, err error) {
	state, isState := strings.CutPrefix(one.Kind, "turn.")
	switch {
	case one.Kind == exchange.EventDelta:
		deltas, err := f.progress.add(one)
		if err != nil || one.Seq <= f.found.after {
			return false, err
		}
		return !f.deltas(one, deltas), nil
	case one.Kind == exchange.EventRestarted:
		f.progress.restart()
	case state == exchange.StateRunning && isState:
		f.progress.begin()
	case one.Kind == exchange.EventModelCalled:
		f.steps = append(f.steps, one)
	case isState && exchange.Settled(state):
		return f.settled(ctx, one)
	}

	return false, nil
}

// deltas writes the steps of one row; the last carries the row's id, so that a reader that was cut off between them gets
// all of them again. It reports whether the reader is still there.
func (f *follower) deltas(one exchange.Event, deltas []contract.Delta) bool {
	var list []event
	for _, delta := range deltas {
		list = append(list, f.form.delta(f.found, delta)...)
	}
	f.last = eventID(one.TurnID, one.Seq)
	return len(list) == 0 || f.out.write(f.last, list...)
}

// settled ends the stream of a turn that ended, or that waits for a decision or a tool.
func (f *follower) settled(ctx context.Context, one exchange.Event) (over bool, err error) {
	turn, err := f.runs.options.Turns.Turn(ctx, one.TurnID)
	if err != nil || !f.runs.tools.settled(turn) {
		return false, err // it waited once, and goes on
	}
	if f.found.patient && !exchange.Terminal(turn.State) && !f.runs.tools.askerRuns(turn) {
		return false, nil
	}

	f.found.turn, f.found.lacks = turn, f.progress.lacks
	if f.found.calls, err = f.runs.tools.calls(ctx, turn); err != nil {
		return false, err
	}
	if form, is := f.form.(choosing); is && !form.over(f.found) {
		return false, nil
	}

	f.out.write(eventID(one.TurnID, one.Seq), append(f.outcomes(turn), f.form.end(f.found, f.steps)...)...)
	return true, nil
}

// outcomes tell how the calls ended that the reader saw begin: the last steps of a run leave no rows of their own.
func (f *follower) outcomes(turn exchange.TurnRecord) (list []event) {
	if turn.Response == nil {
		return nil
	}
	for _, part := range turn.Response.Parts {
		if _, begun := f.progress.calls[part.ID]; !begun || !part.Ended() {
			continue
		}
		for _, delta := range f.progress.outcome(part) {
			list = append(list, f.form.delta(f.found, delta)...)
		}
	}
	return list
}

// eventWriter writes the events of a run for one reader.
type eventWriter struct{ out *httpserver.EventWriter }

func openEvents(ctx context.Context, w http.ResponseWriter, options Options, stop func()) eventWriter {
	return eventWriter{httpserver.OpenEvents(ctx, w, httpserver.EventOptions{
		KeepAlive: options.KeepAlive, WriteTimeout: options.WriteTimeout, Dropped: dropped.Inc,
	}, stop)}
}

// write sends events; the last of them carries the id, if there is one. It reports whether the reader is still there.
func (e eventWriter) write(id string, events ...event) bool {
	list := make([]httpserver.Event, len(events))
	for i, one := range events {
		list[i] = httpserver.Event{Name: one.name, Data: encode(one.data)}
		if i == len(events)-1 {
			list[i].ID = id
		}
	}
	return e.out.Write(list...)
}

// raw is data that is written as it is.
type raw string

func encode(data any) []byte {
	if text, is := data.(raw); is {
		return []byte(text)
	}
	body, err := json.Marshal(data)
	if err != nil {
		panic(err) // a value of ours that cannot be encoded
	}
	return body
}

// progress is the answer as the reader has it. After a run that was cut off the text begins anew: as long as it is what
// the reader has, nothing is written; when it differs, only the last frame tells the whole.
type progress struct {
	sent   strings.Builder
	at     int             // how much of the current run's text is known to be sent
	said   bool            // the current run has said something
	apart  bool            // a new part begins: a blank line stands before its text
	differ bool            // the current run says something else than the reader has
	void   bool            // what was sent may be of a run that ended without an answer
	resets bool            // the reader knows DeltaReset
	parts  []int           // where each part of the text begins in what is sent
	calls  map[string]int  // places of the calls of tools
	ended  map[string]bool // calls whose outcome the reader has
}

// begin is called at the start of each run.
func (p *progress) begin() { p.at, p.said, p.apart, p.differ = 0, false, false, false }

// restart is called when a run ended without an answer and is repeated: its text is void.
func (p *progress) restart() {
	p.void = p.void || p.sent.Len() > 0
	p.begin()
}

// add returns the steps that the reader lacks.
func (p *progress) add(one exchange.Event) ([]contract.Delta, error) {
	var delta normalized.Delta
	if err := json.Unmarshal(one.Body, &delta); err != nil {
		return nil, fmt.Errorf("read delta %d of turn %s: %w", one.Seq, one.TurnID, err)
	}

	switch delta.Kind {
	case normalized.DeltaText:
		return p.text(delta.Text), nil
	case normalized.DeltaPartBegin:
		p.apart = p.said
		if delta.Part != nil && delta.Part.Kind == normalized.PartText {
			return p.text(delta.Part.Content), nil
		}
	case normalized.DeltaToolCallStart:
		if p.apart = p.said; delta.Part != nil {
			return p.call(*delta.Part), nil
		}
	case normalized.DeltaToolCallEnd:
		if delta.Part != nil {
			return p.outcome(*delta.Part), nil
		}
	}

	return nil, nil
}

func (p *progress) text(text string) []contract.Delta {
	if text == "" {
		return nil
	}

	begin, begins := p.at, p.apart || !p.said
	if p.apart {
		text = "\n\n" + text
		begin += len("\n\n")
	}
	if begins && !p.differ && (len(p.parts) == 0 || begin > p.parts[len(p.parts)-1]) {
		p.parts = append(p.parts, begin)
	}

	p.said, p.apart = true, false
	if rest := p.rest(text); rest != "" {
		return []contract.Delta{{Kind: contract.DeltaContent, Text: rest}}
	}
	if p.differ && p.void && p.resets {
		return []contract.Delta{{Kind: contract.DeltaReset}, {Kind: contract.DeltaContent, Text: p.anew(text)}}
	}
	return nil
}

// anew returns the text of the current run so far, which replaces all that was sent.
func (p *progress) anew(text string) string {
	whole := p.sent.String()[:p.at] + text
	p.parts = slices.DeleteFunc(p.parts, func(begin int) bool { return begin > p.at+len("\n\n") })
	p.sent.Reset()
	p.sent.WriteString(whole)
	p.at, p.differ, p.void = len(whole), false, false
	return whole
}

// rest returns what the reader lacks of a text.
func (p *progress) rest(text string) string {
	if p.differ {
		return ""
	}

	if known := min(len(text), p.sent.Len()-p.at); known > 0 {
		if p.sent.String()[p.at:p.at+known] != text[:known] {
			p.differ = true
			return ""
		}
		p.at, text = p.at+known, text[known:]
	}

	p.sent.WriteString(text)
	p.at += len(text)
	return text
}

// lacks returns the part of the final answer that was not streamed yet. The answer may be only the tail of the streamed text, as when a model
// spoke before it called its tools. Streamed text cannot be recalled: an answer that differs from it is appended where one run wrote both.
// It reports false where the text is of a run that ended without an answer, and is not the beginning of this one.
func (p *progress) lacks(reply string) (rest string, one bool) {
	sent := p.sent.String()
	if strings.TrimSpace(sent) == "" {
		return reply, true
	}

	for _, begin := range p.parts {
		text := strings.TrimLeft(sent[min(begin, len(sent)):], whiteSpace)
		said := strings.TrimRight(text, whiteSpace)
		if rest, is := strings.CutPrefix(reply, said); said != "" && is {
			return withoutShared(rest, text[len(said):]), true
		}
	}

	return "\n\n" + reply, !p.void || !p.differ && p.at == len(sent)
}

const whiteSpace = " \t\r\n"

// withoutShared cuts the white space off the start of a text that the reader has already.
func withoutShared(text, has string) string {
	for has != "" && text != "" && text[0] == has[0] {
		text, has = text[1:], has[1:]
	}
	return text
}

// call tells a call of a tool once, also when a later run makes it again.
func (p *progress) call(part normalized.Part) []contract.Delta {
	if _, known := p.calls[part.ID]; known {
		return nil
	}

	if p.calls == nil {
		p.calls = map[string]int{}
	}

	index := len(p.calls)
	p.calls[part.ID] = index
	list := []contract.Delta{{Kind: contract.DeltaCall, ToolCallID: part.ID, ToolName: part.Name, Index: index, Arguments: string(part.Args)}}
	if len(part.Args) > 0 {
		list = append(list, contract.Delta{Kind: contract.DeltaArgument, ToolCallID: part.ID, Text: string(part.Args), Index: index})
	}
	return list
}

// outcome tells how a call ended, once; a reader that has not heard of the call hears of that first.
func (p *progress) outcome(part normalized.Part) []contract.Delta {
	if p.ended[part.ID] {
		return nil
	}

	if p.ended == nil {
		p.ended = map[string]bool{}
	}

	p.ended[part.ID] = true
	list := p.call(part)
	return append(list, outcome(part, p.calls[part.ID]))
}
