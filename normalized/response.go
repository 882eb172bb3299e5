package normalized

import (
	"fmt"
	"iter"
	"strings"

	"inbox/identity"
	"inbox/policypart"
)

// Visibilities of a response; never wider than the question's.
const (
	VisibilityPublic    = "public"
	VisibilityUnlisted  = "unlisted"
	VisibilityFollowers = "followers"
	VisibilityDirect    = "direct"
)

// Values of Response.Status; empty means completed.
const (
	StatusCompleted     = "completed"
	StatusInputRequired = "input_required"
	StatusFailed        = "failed"
)

// MetadataTalk is a key of Response.Metadata: with the value "true" the answer is talk and not a result. Where a protocol
// knows the difference, a caller gets a message and no artifact.
const MetadataTalk = "talk"

// Response is what an agent hands back (message contract, section 5).
type Response struct {
	InReplyTo  string            `json:"in_reply_to,omitempty"` // required; Answering fills it
	ThreadID   string            `json:"thread_id,omitempty"`
	Parts      []Part            `json:"parts,omitempty"` // at least one, except when silent
	Silent     bool              `json:"silent,omitempty"`
	To         []string          `json:"to,omitempty"`
	Cc         []string          `json:"cc,omitempty"`
	Visibility string            `json:"visibility,omitempty"`
	Status     string            `json:"status,omitempty"`
	Error      *ResponseError    `json:"error,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"` // for the operator's trace; never delivered

	// Dispatch asks other agents first: nothing of this response is sent, and the same turn runs again with their
	// answers in Message.ReceivedTrace.
	Dispatch []Dispatch `json:"dispatch,omitempty"`

	// Left is what Fit left out. It is no part of the document: a text part says so to readers.
	Left Left `json:"-"`

	unknown members // keys of a newer contract, kept in stored and forwarded documents
}

// Dispatch is one question of an agent to another agent.
type Dispatch struct {
	To    string `json:"to"` // @agent@domain
	Parts []Part `json:"parts"`
}

// ResponseError goes with status failed; Message is for the sender: plain, without internals.
type ResponseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Kinds of mention relay.
const (
	RelayInline         = "inline"
	RelayRecipientField = "recipient-field"
	RelayAddressing     = "addressing"
	RelayNone           = "none"
)

// RecipientCapabilities says what the way back can carry (message contract, section 6).
type RecipientCapabilities struct {
	MentionRelay MentionRelay           `json:"mention_relay"`
	AgentChain   *AgentChain            `json:"agent_chain,omitempty"`
	MaxTextBytes int                    `json:"max_text_bytes,omitempty"`
	TextMIMEs    []string               `json:"text_mimes,omitempty"`
	Attachments  *AttachmentsCapability `json:"attachments,omitempty"`
	Threads      *bool                  `json:"threads,omitempty"`
	Edits        *bool                  `json:"edits,omitempty"`
}

// MentionRelay tells how a mention of another party in the reply reaches it.
type MentionRelay struct {
	Kind           string   `json:"kind"`
	Fields         []string `json:"fields,omitempty"`          // recipient-field
	EnvelopeFields []string `json:"envelope_fields,omitempty"` // addressing
	AlsoInline     bool     `json:"also_inline,omitempty"`     // addressing
}

// AttachmentsCapability bounds the files of a reply.
type AttachmentsCapability struct {
	MaxCount int      `json:"max_count,omitempty"`
	MaxBytes int64    `json:"max_bytes,omitempty"`
	MIMEs    []string `json:"mimes,omitempty"`
}

// AgentChain counts the hops of agents calling agents.
type AgentChain struct {
	Hop     int  `json:"hop"` // from 1 = first chained turn
	MaxHops int  `json:"max_hops"`
	IsFinal bool `json:"is_final"`
}

// Kinds of a Delta.
const (
	DeltaPartBegin     = "part_begin"      // Part becomes the last part; text parts may still grow
	DeltaText          = "text"            // Text is appended to the last part, which is a text part (one is begun if needed)
	DeltaPartEnd       = "part_end"        // the last part is finished
	DeltaToolCallStart = "tool_call_start" // Part is a bare tool_call
	DeltaToolCallEnd   = "tool_call_end"   // Part is the same tool_call (same id) with its outcome
	DeltaStatus        = "status"          // Response carries the fields beside the parts (status, error, silent, to, cc, …)
	DeltaResponse      = "response"        // Response is the whole answer; it replaces what came before
)

// Delta is one step of a growing answer. The fold of an agent's deltas is its Response.
type Delta struct {
	Kind     string    `json:"kind"`
	Text     string    `json:"text,omitempty"`
	Part     *Part     `json:"part,omitempty"`
	Response *Response `json:"response,omitempty"`
}

// Answering returns the response with what an agent may leave out: the ids of the question, the status that a policy part
// sets, a code for an error and a text for a failure that has nothing else to say.
func (r Response) Answering(question Message) Response {
	if r.InReplyTo == "" {
		r.InReplyTo = question.ID
	}
	if r.ThreadID == "" {
		r.ThreadID = question.ThreadID
	}
	if policy := r.Policy(); policy != nil && r.Status == "" {
		r.Status = policypart.ResponseStatus(policy.Kind)
	}
	if r.Error == nil {
		return r
	}

	failure := *r.Error
	if failure.Code == "" {
		failure.Code = FailedAgent
	}
	if len(r.Parts) == 0 && !r.Silent && strings.TrimSpace(failure.Message) != "" {
		r.Parts = []Part{Text(failure.Message)}
	}

	r.Error = &failure
	return r
}

// Policy returns the demand or refusal of the response, which is its last part; nil when it has none.
func (r *Response) Policy() *policypart.Part {
	if len(r.Parts) == 0 {
		return nil
	}
	last := &r.Parts[len(r.Parts)-1]
	if last.Kind != PartPolicy {
		return nil
	}
	return last.Policy
}

// Outcome returns the status with its default.
func (r *Response) Outcome() string {
	if r.Status == "" {
		return StatusCompleted
	}
	return r.Status
}

// Whole streams a finished response: the one delta of an agent that does not grow its answer.
func Whole(r Response) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		yield(Delta{Kind: DeltaResponse, Response: &r}, nil)
	}
}

// Failing streams an error: the agent has no answer.
func Failing(err error) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) { yield(Delta{}, err) }
}

// MaxDispatches bounds the agents that one response may ask at once.
const MaxDispatches = 4

func (w *writer) dispatches(list []Dispatch) {
	if len(list) == 0 {
		return
	}

	w.name("dispatch")
	w.open('[')

	for i := range list {
		w.open('{')
		w.field("to", list[i].To)
		w.name("parts")
		w.parts(list[i].Parts)
		w.close('}')
	}
	w.close(']')
}

func readDispatches(r *reader) (list []Dispatch) {
	if !r.beginArray() {
		return nil
	}
	for r.element() {
		list = append(list, Dispatch{})
		readDispatch(r, &list[len(list)-1])
	}
	return list
}

func readDispatch(r *reader, d *Dispatch) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "to":
			d.To = r.string()
		case "parts":
			d.Parts = readParts(r)
		default:
			r.skip()
		}
	}
}

func cleanDispatches(list []Dispatch) []Dispatch {
	if len(list) == 0 {
		return nil
	}
	cleaned := make([]Dispatch, len(list))
	for i, d := range list {
		cleaned[i] = Dispatch{To: d.To, Parts: cleanParts(d.Parts)}
	}
	return cleaned
}

// bytes adds up the texts and the inline bytes of what is asked.
func dispatchBytes(list []Dispatch) (texts, inline int) {
	for i := range list {
		texts += partTexts(list[i].Parts)
		inline += inlineBytes(list[i].Parts)
	}
	return texts, inline
}

// dispatches checks what an agent asks of others. Such a response is a step on the way to the answer: it says nothing
// itself, because nothing of it is sent.
func (c *checker) dispatches(r *Response, self string) {
	if len(r.Dispatch) == 0 {
		return
	}

	at := key(nil, "dispatch")
	switch {
	case len(r.Dispatch) > MaxDispatches:
		c.broken(&at, fmt.Sprintf("has more than %d entries", MaxDispatches))
		return
	case r.Silent:
		c.broken(&at, "does not go with silent")
	case r.Status != "" && r.Status != StatusCompleted:
		c.broken(&at, "does not go with status "+r.Status)
	case len(r.To) > 0 || len(r.Cc) > 0:
		c.broken(&at, "does not go with to or cc: nothing of this response is sent")
	}

	for i := range r.Dispatch {
		entry := index(&at, i)
		c.dispatch(&entry, &r.Dispatch[i], self)
	}
}

func (c *checker) dispatch(at *place, d *Dispatch, self string) {
	to := key(at, "to")
	if address, ok := c.address(&to, d.To); ok && sameAddress(address, self) {
		c.broken(&to, "must be another agent")
	}

	parts := key(at, "parts")
	c.parts(&parts, d.Parts, question)

	for i := range d.Parts {
		if d.Parts[i].running() {
			entry := index(&parts, i)
			c.broken(&entry, "a tool call needs its result or error")
		}
	}
}

func sameAddress(address identity.Address, other string) bool {
	parsed, err := identity.ParseAddress(other)
	return err == nil && identity.CanonicalAgent(parsed) == identity.CanonicalAgent(address)
}
