package normalized

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
// knows the difference, a caller that waits for it gets a plain message and no task.
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

// MentionRelay says how a mention of somebody else in the reply reaches them.
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
