package request

import (
	"fmt"

	"inbox/agents/runtime/value"
)

// MaxRecordBytes is how long a request or a result may be as JSON.
const MaxRecordBytes = 1 << 20

// rowLimits let a record in that was checked when it was written.
var rowLimits = value.Limits{Bytes: 4 * MaxRecordBytes, Depth: 128}

// FromRow makes the record of a Store out of what a durable one keeps: the request as it was made, its status now, and
// the result, empty without one.
func FromRow(document []byte, status string, result []byte) (map[string]any, error) {
	record, err := value.Decode(document, rowLimits)
	if err != nil {
		return nil, fmt.Errorf("read tool request: %w", err)
	}
	request := value.Assoc(record)
	request["status"] = status
	if len(result) == 0 {
		return request, nil
	}
	kept, err := value.Decode(result, rowLimits)
	if err != nil {
		return nil, fmt.Errorf("read result of tool request: %w", err)
	}
	request["result"] = kept
	return request, nil
}

// Outcome gives the result of a stored request as the waiting run gets it; false while it is pending. A request that
// timed out or was cancelled gives a failed one (agent runtime contract, section 5).
func Outcome(stored map[string]any) (result map[string]any, ended bool, err error) {
	if Pending(stored) {
		return nil, false, nil
	}
	if result, err = storedResult(stored); err != nil || result != nil {
		return result, true, err
	}
	result, err = terminalResult(stored, textTimedOut, StatusTimeout)
	return result, true, err
}
