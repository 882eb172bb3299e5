package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"inbox/agents"
	"inbox/agents/hook"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

const noteVersion = 1

// note is what a turn remembers between its runs: everything after the prompt, what it took, and what it waits for.
type note struct {
	Version    int                       `json:"version"`
	Messages   []envelope.Envelope       `json:"messages,omitempty"`
	Usage      map[string]any            `json:"usage,omitempty"`
	ModelCalls int                       `json:"model_calls,omitempty"`
	Turns      int                       `json:"turns,omitempty"`   // of the model; its other calls are summaries and such
	Asked      int                       `json:"asked,omitempty"`   // questions to other agents
	Rounds     int                       `json:"rounds,omitempty"`  // of such questions
	Dropped    int                       `json:"dropped,omitempty"` // results of tools that a compaction took away
	Head       *head                     `json:"head,omitempty"`    // stands for the beginning of the history
	Shown      []string                  `json:"shown,omitempty"`   // keys of the files that the model was shown: a later run shows the same
	Waiting    *Waiting                  `json:"waiting,omitempty"`
	Claims     map[string]map[string]any `json:"claims,omitempty"`   // at_most_once calls; nil = not known to have ended
	Called     map[string]int            `json:"called,omitempty"`   // calls of each tool that ended
	Unjudged   []string                  `json:"unjudged,omitempty"` // calls whose results came while the run waited: the completion policy has not seen them
	Complete   bool                      `json:"complete,omitempty"` // the completion policy wants no further turn
	Events     *hook.State               `json:"events,omitempty"`   // that the observer does not have
}

// takeUp reads the note. waits says that the run still waits; otherwise what it waited for is in the transcript.
func (j *job) takeUp(ctx context.Context) (waits bool, err error) {
	j.note = &note{Version: noteVersion}
	if j.turn.Memory == nil {
		return false, nil
	}

	saved, err := j.turn.Memory.Load(ctx)
	if err != nil || len(saved) == 0 {
		return false, err //nolint:wrapcheck // a fault already
	}

	given, err := value.Decode(saved, value.Limits{Bytes: agents.MaxMemory, Depth: 128})
	if err == nil {
		err = j.note.read(given)
	}
	if err != nil {
		slog.WarnContext(ctx, "the note of an earlier run cannot be read: the turn starts over", "turn", j.turn.ID, "err", err)
		j.note = &note{Version: noteVersion}
		return false, nil
	}

	j.earlier = j.note.Turns
	j.hooked.resume(j.note.Events)
	if j.note.Waiting != nil {
		if waits, err = j.settle(ctx); waits || err != nil {
			return waits, err
		}
	}

	return false, j.judgeSettled(ctx)
}

// read fills the note with numbers as the runtime has them, which encoding/json alone would turn into floats.
func (n *note) read(given any) error {
	object := value.Assoc(given)
	version, _ := value.Integer(object["version"])
	if version != noteVersion {
		return fmt.Errorf("its version is %d", version)
	}

	messages, err := envelope.NormalizeMany(orEmptyList(object["messages"]))
	if err != nil {
		return fmt.Errorf("read note: %w", err)
	}

	n.Messages = ofEarlierRuns(messages)
	if usage, is := object["usage"].(map[string]any); is {
		n.Usage = usage
	}

	for name, counter := range map[string]*int{
		"model_calls": &n.ModelCalls, "turns": &n.Turns, "asked": &n.Asked, "rounds": &n.Rounds, "dropped": &n.Dropped,
	} {
		count, _ := value.Integer(object[name])
		*counter = int(count)
	}

	if err := n.readHead(object["head"]); err != nil {
		return err
	}

	for name, given := range value.Assoc(object["called"]) {
		count, _ := value.Integer(given)
		n.count(name, int(count))
	}

	n.Unjudged, n.Shown = textsOf(object["unjudged"]), textsOf(object["shown"])

	n.Complete = marked(object, "complete")
	if err := n.readEvents(object["events"]); err != nil {
		return err
	}

	for key, result := range value.Assoc(object["claims"]) {
		kept, _ := result.(map[string]any)
		n.claim(key, kept)
	}

	if waiting, is := object["waiting"].(map[string]any); is {
		n.Waiting = &Waiting{
			Status: value.Text(waiting["status"]), ToolName: value.Text(waiting["tool_name"]),
			CallID: value.Text(waiting["tool_call_id"]), Request: value.Assoc(waiting["request"]),
		}
	}

	return nil
}

// textsOf reads a list of texts; nil = none.
func textsOf(given any) (texts []string) {
	list, _ := value.List(given)
	for _, text := range list {
		texts = append(texts, value.Text(text))
	}
	return texts
}

func orEmptyList(value any) any {
	if value == nil {
		return []any{}
	}
	return value
}

func (n *note) claim(key string, result map[string]any) {
	if n.Claims == nil {
		n.Claims = map[string]map[string]any{}
	}
	n.Claims[key] = result
}

// count adds calls of a tool that ended.
func (n *note) count(name string, calls int) {
	if n.Called == nil {
		n.Called = map[string]int{}
	}
	n.Called[name] += calls
}

// add counts one call of the model.
func (n *note) add(usage map[string]any) {
	n.ModelCalls++
	if n.Usage == nil {
		n.Usage = map[string]any{}
	}

	for name, given := range usage {
		if cost, is := given.(float64); is {
			before, _ := strconv.ParseFloat(fmt.Sprint(n.Usage[name]), 64) // absent is no number
			n.Usage[name] = before + cost
			continue
		}
		before, _ := value.Integer(n.Usage[name])
		more, _ := value.Integer(given)
		n.Usage[name] = before + more
	}
}

// calls counts the tool calls that ended.
func (n *note) calls() int {
	count := n.Dropped
	for i := range n.Messages {
		if n.Messages[i].Type == envelope.TypeToolResult {
			count++
		}
	}
	return count
}

// earlierTurns moves the turn numbers of earlier runs out of the way: the loop counts from 1 in each run, and calls of the
// same number are shown to the model as made at once.
const earlierTurns = 100_000

func ofEarlierRuns(messages []envelope.Envelope) []envelope.Envelope {
	for i := range messages {
		number, is := value.Integer(messages[i].Payload["turn"])
		if messages[i].Type == envelope.TypeToolCall && is {
			messages[i].Payload = maps.Clone(messages[i].Payload)
			messages[i].Payload["turn"] = number - earlierTurns
		}
	}
	return messages
}

// since returns the messages after the prompt; false when a compaction took the request away.
func since(transcript []envelope.Envelope) ([]envelope.Envelope, bool) {
	at := slices.IndexFunc(transcript, func(message envelope.Envelope) bool { return marked(message.Metadata, markRequest) })
	if at < 0 {
		return nil, false
	}
	return transcript[at+1:], true
}

// keep saves the transcript before the model is asked again: a crash then repeats no tool that ended.
func (j *job) keep(ctx context.Context, transcript []envelope.Envelope) error {
	if j.turn.Memory == nil || len(transcript) <= j.kept {
		return nil
	}

	messages, has := since(transcript)
	if !has {
		return nil
	}

	j.note.Messages, j.kept = messages, len(transcript)
	if err := j.save(ctx); !fault.Is(err, fault.TooLarge) {
		return err
	}

	slog.WarnContext(ctx, "the transcript is too long to be kept: after a crash its tools run again", "turn", j.turn.ID)
	return nil
}

// keepTime bounds the write of a run that is over.
const keepTime = 5 * time.Second

// keepSpent saves the tokens of a run that failed: its next run has what is left of the budgets. A run that another one has taken the place
// of saves nothing.
func (j *job) keepSpent(ctx context.Context) {
	if !j.unkept || j.turn.Memory == nil || ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer cancel()
	if err := j.save(ctx); err != nil {
		slog.WarnContext(ctx, "the tokens of a failed run are not kept", "turn", j.turn.ID, "error", err)
	}
}

func (j *job) save(ctx context.Context) error {
	kept := j.hooked.keep(j.note)
	encoded, err := json.Marshal(j.note)
	if err != nil {
		return fmt.Errorf("write note: %w", err)
	}

	err = j.turn.Memory.Save(ctx, encoded)
	if err == nil {
		kept()
		j.unkept = false
	}
	return err //nolint:wrapcheck // a fault already
}

// repeats remembers at_most_once calls beyond a crash, in the note of the turn.
type repeats struct{ job *job }

// Claim implements tool.Repeats.
func (r repeats) Claim(ctx context.Context, key string) (earlier map[string]any, claimed bool, err error) {
	if result, taken := r.job.note.Claims[key]; taken {
		return result, false, nil
	}
	r.job.note.claim(key, nil)
	if r.job.turn.Memory == nil {
		return nil, true, nil
	}

	err = r.job.save(ctx)
	if fault.OutcomeOf(err) == fault.NotDone {
		delete(r.job.note.Claims, key) // the call is not made; a claim that may be stored stays
	}
	return nil, true, err
}

// Keep implements tool.Repeats.
func (r repeats) Keep(ctx context.Context, key string, result map[string]any) error {
	r.job.note.claim(key, result)
	if r.job.turn.Memory == nil {
		return nil
	}
	return r.job.save(ctx)
}
