package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Turn implements loop.Runner: one call of the model.
func (j *job) Turn(ctx context.Context, transcript []envelope.Envelope, turn map[string]any) (any, error) {
	if err := j.keep(ctx, transcript); err != nil {
		return nil, j.fail(err)
	}

	last := value.Equal(turn["turn"], j.turnsLeft())
	shorter, said, err := j.askFitting(ctx, transcript, "", last)
	if err != nil {
		return nil, j.fail(err)
	}

	j.said = said
	j.note.Turns++
	result := map[string]any{"usage": said.usage.tokens(), "metadata": map[string]any{"stop": said.stop}}
	if shorter != nil {
		transcript, result["messages"] = shorter, shorter
	}

	words, err := j.goOn(ctx, turn, said, last)
	if err != nil {
		return nil, j.fail(err)
	}

	if j.tools.Len() == 0 {
		result["messages"] = append(append(slices.Clip(transcript), envelope.AssistantText(said.content(), nil)), words...)
		return result, nil
	}

	if len(words) > 0 {
		result["continuation_messages"] = words
	}

	distinct(said.calls, transcript)
	result["content"], result["tool_calls"] = said.content(), []any{}

	for i := range said.calls {
		result["tool_calls"] = append(result["tool_calls"].([]any), said.calls[i].row(j.tools))
	}

	return result, nil
}

// fail remembers the failure as it was: the loop keeps its text only.
func (j *job) fail(err error) error {
	if j.problem == nil {
		j.problem = err
	}
	return err
}

// ask streams one assistant turn. With answer the model must not call tools any more.
func (j *job) ask(ctx context.Context, transcript []envelope.Envelope, purpose string, answer bool) (*reply, error) {
	options := &j.agent.options
	conversation := &conversation{tools: j.tools, pictures: j.pictures}
	conversation.files = func(result envelope.Envelope) []Block { return j.resultFiles(ctx, result) }
	conversation.write(transcript)
	said, err := j.stream(ctx, Request{
		Model: options.Model, System: j.system + formatWords(j.turn.Format), Messages: conversation.finish(), Tools: described(j.tools), NoTools: answer,
		MaxTokens: options.MaxTokens, Temperature: options.Temperature, Whole: options.Whole, Format: j.turn.Format,
	}, purpose, j.answer.text)
	if err != nil {
		return nil, err
	}

	j.answer.end()
	j.stop = said.stop
	return said, nil
}

// stream makes one call of the model and counts it, with the attempts that broke off.
func (j *job) stream(ctx context.Context, request Request, purpose string, text func(string)) (said *reply, err error) {
	said = &reply{}
	started, current, broken := time.Now(), attempt{request: &request}, Usage{}
	defer func() {
		said.usage = broken.plus(current.spent(err))
		j.note.add(said.usage.tokens())
		j.unkept = j.unkept || err != nil && said.usage != Usage{}
		j.measure()
		j.modelEnded(started, request.Model, purpose, said, err)
		observeTokens(said.usage)
	}()

	for delta, err := range j.agent.options.Provider.Stream(ctx, request) {
		if err != nil {
			return said, err
		}
		if delta.Kind == DeltaSpent {
			broken, current = broken.plus(delta.Usage), attempt{request: &request}
			if budget := j.exceededBy(broken); budget != "" {
				return said, fault.GiveUp(sayStopped(budget), fmt.Errorf("attempts that broke off used up the budget %s: %w", budget, errUnsent)).Coded(normalized.FailedBudget)
			}
			continue
		}

		current.add(delta)
		before := said.text.Len()
		if wrong := said.add(delta); wrong != nil {
			return said, unusable(wrong)
		}
		if grown := said.text.String()[before:]; grown != "" && text != nil {
			text(grown)
		}
	}

	return said, nil
}

// Provider is a model behind an API. Stream asks for one assistant turn and yields it as it comes; calls of tools are
// announced once and their arguments follow in pieces. The last delta before a normal end is a DeltaStop. An error ends
// the stream: a *fault.Fault, with Permanent when the same request cannot succeed, or the cause of the ended context.
// Implementations are safe for concurrent use and do not change the request.
type Provider interface {
	Stream(ctx context.Context, request Request) iter.Seq2[Delta, error]
}

// Reacher is a Provider that can be looked for without a request: Reach reports whether it takes connections.
type Reacher interface {
	Reach(ctx context.Context) error
}

// Prober is a Provider that can be asked whether it works without a call of a model: Probe returns why it does not.
type Prober interface {
	Probe(ctx context.Context) error
}

// Formatter is a Provider that can hold answers to a form: Formats reports whether it can do so for a kind of exchange.Format.
type Formatter interface {
	Formats(kind string) bool
}

// Request is what a model is asked.
type Request struct {
	Model       string
	System      string
	Messages    []Message
	Tools       []Tool
	NoTools     bool     // the model sees the tools and must answer without calling one
	MaxTokens   int      // of the answer; 0 = the provider's default
	Temperature *float64 // nil = the provider's default
	Whole       bool     // the answer comes in one document instead of a stream

	Format *exchange.Format // that the answer has to have; nil = any
}

// Roles of a Message.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Message is one side's turn. Results of tools stand in the user's turn after their calls.
type Message struct {
	Role   string
	Blocks []Block

	// CacheBreakpoint says that the conversation up to here will be the same next time: up to CacheBlocks of the blocks, 0 = all.
	CacheBreakpoint bool
	CacheBlocks     int
}

// Kinds of a Block.
const (
	BlockText   = "text"        // Text
	BlockImage  = "image"       // MediaType and Data, or URL; user only
	BlockCall   = "tool_call"   // ID, Name and Arguments; assistant only
	BlockResult = "tool_result" // ID, Text and Failed; user only
)

// Block is one piece of a Message.
type Block struct {
	Kind      string
	Text      string
	MediaType string
	Data      []byte
	URL       string
	ID        string          // of the call, also in its result
	Name      string          // of the tool
	Arguments json.RawMessage // an object
	Failed    bool            // the result is an error
}

// Tool is one tool as the model sees it.
type Tool struct {
	Name        string // [A-Za-z0-9_-]{1,64}
	Description string
	Parameters  map[string]any // JSON Schema of an object
}

// Kinds of a Delta.
const (
	DeltaText      = "text"      // Text is appended to the answer
	DeltaToolCall  = "tool_call" // a call begins: Index counts from 0, ID and Name are whole
	DeltaArguments = "arguments" // Text is appended to the JSON text of the arguments of call Index
	DeltaThought   = "thought"   // Text is written by the model and no part of the answer; it is counted alone
	DeltaUsage     = "usage"     // Usage so far; replaces the one before
	DeltaSpent     = "spent"     // Usage of an attempt that broke off before a piece of the answer came; the next one begins
	DeltaStop      = "stop"      // the turn is complete; Stop says why it ended
)

// Why a model stopped. Other values are those of the provider.
const (
	StopEnd       = "end"        // it said what it had to say
	StopToolCalls = "tool_calls" // it waits for results
	StopLength    = "length"     // the answer was cut at a limit of tokens
	StopRefusal   = "refusal"    // the provider's filter or the model refused
)

// Delta is one step of a growing assistant turn.
type Delta struct {
	Kind  string
	Text  string
	Index int
	ID    string
	Name  string
	Usage Usage
	Stop  string
}

// Usage counts tokens of one turn. Input holds all input tokens, those from and for the cache among them.
type Usage struct {
	Input      int64
	Output     int64
	CacheRead  int64
	CacheWrite int64
	Cost       float64 // in the provider's currency, where it says so itself; else 0
}
