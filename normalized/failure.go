package normalized

import "slices"

// Codes of a ResponseError that the server writes when an agent gave no answer. They do not change. Docs: docs/reference/errors.md.
const (
	FailedUnreachable   = "agent:unreachable"    // the program or agent behind the address could not be reached, or broke off
	FailedBusy          = "agent:busy"           // it has no room now
	FailedTimeout       = "agent:timeout"        // it, or its model, did not answer in time
	FailedRefused       = "agent:refused"        // it does not take the message
	FailedAgent         = "agent:failed"         // it failed and gave no code
	FailedInvalidAnswer = "agent:invalid_answer" // its answer, or its model's, breaks a rule

	FailedModelUnreachable = "model:unreachable"      // the provider could not be reached, or broke off
	FailedModelRateLimited = "model:rate_limited"     // the provider has no room for the operator now
	FailedModelAuth        = "model:auth"             // the provider refuses the operator's key or account
	FailedModelRejected    = "model:rejected"         // the provider does not take the request
	FailedContextTooLong   = "model:context_too_long" // the conversation is longer than the model can read

	FailedBudget = "run:budget_exceeded" // the run used up what one message may take
)

// retryable are the codes of failures that may pass without a change of the message. Those of other packages are among them.
var retryable = []string{
	FailedUnreachable, FailedBusy, FailedTimeout, FailedModelUnreachable, FailedModelRateLimited,
	"run:interrupted", "dispatch:unreachable", "unavailable", "rate_limited",
}

// Retryable reports whether the same message may be answered later. It is false for a code that an agent made up.
func (e *ResponseError) Retryable() bool { return slices.Contains(retryable, e.Code) }

// MetadataStop is a key of Response.Metadata: why the agent's model stopped. With the value StopLength the answer is cut: the model
// reached its limit of tokens.
const (
	MetadataStop = "stop"
	StopLength   = "length"
)

// Keys of Response.Metadata for a run that ended before its work was done, as its conversation result says: the status of the result,
// such as StoppedBudget, and its reason to stop.
const (
	MetadataOutcome    = "outcome"
	MetadataStopReason = "stop_reason"
)

// Statuses of a run that ended before its work was done (agent runtime contract, section 3.5).
const (
	StoppedBudget     = "budget_exceeded"
	StoppedStalled    = "stalled"
	StoppedInterrupt  = "interrupted"
	StoppedIncomplete = "incomplete"
)

// Stopped returns the status of a run that ended before its work was done; empty for any other answer and for none.
func (r *Response) Stopped() string {
	if r == nil || r.Outcome() == StatusCompleted {
		return ""
	}
	switch status := r.Metadata[MetadataOutcome]; status {
	case StoppedBudget, StoppedStalled, StoppedInterrupt, StoppedIncomplete:
		return status
	}
	return ""
}

// StopReason returns why a run stopped that ended before its work was done; empty for any other answer.
func (r *Response) StopReason() string {
	status := r.Stopped()
	if status == "" {
		return ""
	}
	return orElse(r.Metadata[MetadataStopReason], status)
}

// Cut is the text part that tells a reader that the model did not finish. It is the last part of the answer.
const Cut = "(The answer ends here because the model reached its limit of length.)"

// Unfinished reports whether the answer is cut because its model reached its limit of tokens.
func (r *Response) Unfinished() bool { return r.Metadata[MetadataStop] == StopLength }
