package exchange

import (
	"encoding/json"
	"time"
)

// RunResult is the conversation result of one run of a turn as it is kept (agent runtime contract, section 2).
type RunResult struct {
	TurnID  string          `json:"-"`
	Run     int             `json:"run"` // the attempt of the turn that gave it
	At      time.Time       `json:"at"`
	Status  string          `json:"status"`             // run_outcome.status
	Bytes   int             `json:"bytes"`              // of the document as the agent gave it
	LeftOut string          `json:"left_out,omitempty"` // why the document is not kept; empty = it is
	Body    json.RawMessage `json:"-"`                  // the document; nil where it has a digest or was left out
	Digest  string          `json:"-"`                  // of the document in the blob store; empty without one

	// Audit is tool_audit_events of the document, which stay when it does not: hashes and states of calls, without parameters and results
	// (agent runtime contract, section 4.7). Nil = no call of a tool ended.
	Audit []json.RawMessage `json:"-"`
}

// MaxRunResults is how many documents of one turn are kept, the newest; of older runs the row is left.
const MaxRunResults = 16

// RunResultLife is how long results are kept.
const RunResultLife = 90 * 24 * time.Hour
