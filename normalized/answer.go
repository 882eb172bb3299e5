package normalized

import (
	"iter"
	"strings"

	"inbox/policypart"
)

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
		failure.Code = "agent:failed"
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
