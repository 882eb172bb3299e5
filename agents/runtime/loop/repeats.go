package loop

import (
	"fmt"
	"regexp"
	"strings"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// SpinSignature identifies a tool call by its name and raw parameters, whatever the order of their members (agent
// runtime contract, section 3.6).
type SpinSignature struct {
	ToolName       string
	ParametersHash string // H(parameters)
	SignatureHash  string // H({tool_name, parameters_hash})
}

// NewSpinSignature hashes a call.
func NewSpinSignature(toolName string, parameters map[string]any) SpinSignature {
	signature := SpinSignature{ToolName: value.Trim(toolName), ParametersHash: tool.Hash(parameters)}
	signature.SignatureHash = tool.Hash(map[string]any{
		"tool_name": signature.ToolName, "parameters_hash": signature.ParametersHash,
	})
	return signature
}

// payload is the signature with what the detector knows about it.
func (s SpinSignature) payload(turn, repeats, threshold int) map[string]any {
	return map[string]any{
		"tool_name": s.ToolName, "parameters_hash": s.ParametersHash, "signature_hash": s.SignatureHash,
		"turn": turn, "repeat_count": repeats, "threshold": threshold,
	}
}

// SpinDetector watches the calls of a run, in order, for a model that turns on the spot.
type SpinDetector interface {
	// Record notes one call and reports whether the run has stalled with it. An error ends the run.
	Record(signature SpinSignature, turn map[string]any) (stalled bool, err error)
	// Repeats and Threshold describe the last recorded call.
	Repeats() int
	Threshold() int
}

// streak counts equal signatures that follow each other.
type streak struct {
	threshold int
	repeats   int
	last      string
}

func (s *streak) record(hash string) bool {
	if hash == s.last {
		s.repeats++
	} else {
		s.last, s.repeats = hash, 1
	}
	return s.repeats >= s.threshold
}

// Repeats returns how often the last signature came without another between.
func (s *streak) Repeats() int { return s.repeats }

// Threshold returns the number of repeats that trips.
func (s *streak) Threshold() int { return s.threshold }

// ConsecutiveSpin is the default detector: equal calls that follow each other, counted across turns. It belongs to one
// run.
type ConsecutiveSpin struct{ streak }

// NewConsecutiveSpin makes a detector; 0 means the default threshold of 3, the least is 2.
func NewConsecutiveSpin(threshold int) *ConsecutiveSpin {
	if threshold == 0 {
		threshold = 3
	}
	return &ConsecutiveSpin{streak{threshold: max(2, threshold)}}
}

// Record implements SpinDetector.
func (d *ConsecutiveSpin) Record(signature SpinSignature, _ map[string]any) (bool, error) {
	return d.record(signature.SignatureHash), nil
}

// FailureSignature identifies a failed call by name, raw parameters and kind of error (agent runtime contract,
// section 3.6).
type FailureSignature struct {
	ToolName       string
	ParametersHash string
	ErrorCode      string // lower case, [a-z0-9_-]; "error_" and 12 hex digits when the result names none
	SignatureHash  string
}

// NewFailureSignature hashes a failed call and its normalized result.
func NewFailureSignature(toolName string, parameters, result map[string]any) FailureSignature {
	signature := FailureSignature{
		ToolName:       value.Trim(toolName),
		ParametersHash: tool.Hash(parameters),
		ErrorCode:      failureCode(result),
	}
	signature.SignatureHash = tool.Hash(map[string]any{
		"tool_name": signature.ToolName, "parameters_hash": signature.ParametersHash, "error_code": signature.ErrorCode,
	})
	return signature
}

var notOfCode = regexp.MustCompile(`[^a-z0-9_-]+`)

func failureCode(result map[string]any) string {
	metadata := value.Assoc(result["metadata"])
	named := []any{
		result["error_code"], result["code"], metadata["error_type"], metadata["error_code"], metadata["code"],
	}

	for _, given := range named {
		if code := value.Trim(value.Scalar(given)); code != "" {
			return notOfCode.ReplaceAllString(strings.ToLower(code), "_")
		}
	}

	text, is := result["error"].(string)
	if !is {
		text = "tool_execution_failed"
	}

	return "error_" + strings.TrimPrefix(tool.Hash(text), "sha256:")[:12]
}

// payload is the signature with what the tracker knows about it.
func (s FailureSignature) payload(turn, repeats, threshold int, message string) map[string]any {
	return map[string]any{
		"tool_name": s.ToolName, "parameters_hash": s.ParametersHash, "error_code": s.ErrorCode,
		"signature_hash": s.SignatureHash, "turn": turn, "repeat_count": repeats, "threshold": threshold, "message": message,
	}
}

// FailureTracker watches failed calls for repeats and says what to tell the model.
type FailureTracker interface {
	// Record notes one failure and returns a nudge for the model, blank for none. An error ends the run.
	Record(signature FailureSignature, turn map[string]any) (nudge string, err error)
	// Repeats and Threshold describe the last recorded failure.
	Repeats() int
	Threshold() int
}

// ConsecutiveFailures is the default tracker: equal failures without another failure between. It belongs to one run.
type ConsecutiveFailures struct{ streak }

// NewConsecutiveFailures makes a tracker; the least threshold, also the default, is 2.
func NewConsecutiveFailures(threshold int) *ConsecutiveFailures {
	return &ConsecutiveFailures{streak{threshold: max(2, threshold)}}
}

// Record implements FailureTracker.
func (t *ConsecutiveFailures) Record(signature FailureSignature, _ map[string]any) (string, error) {
	if !t.record(signature.SignatureHash) {
		return "", nil
	}
	return fmt.Sprintf("The tool call `%s` has failed %d times with the same arguments and error `%s`. "+
		"Try a different approach before repeating it.", signature.ToolName, t.repeats, signature.ErrorCode), nil
}
