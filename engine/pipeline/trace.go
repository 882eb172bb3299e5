package pipeline

import (
	"context"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

// traceOf returns the answers that a turn has got as its agent sees them: one as it is, several one after the other, each
// behind a text that says whose it is. Answers of earlier rounds stay in it, because an agent need not remember its own
// runs. nil when the agent asked for none itself.
func traceOf(turn exchange.TurnRecord, calls []exchange.Dispatch, limits normalized.Limits) *normalized.Response {
	var answers []exchange.Dispatch
	for _, d := range calls {
		if d.Number > 0 && !d.Combine && d.Response != nil {
			answers = append(answers, d)
		}
	}
	switch len(answers) {
	case 0:
		return nil
	case 1:
		return answers[0].Response
	}
	trace := normalized.Response{InReplyTo: turn.Message.ID, ThreadID: turn.Message.ThreadID, Status: normalized.StatusCompleted}
	share := limits.Trace / len(answers)
	for _, d := range answers {
		answer := fitted(*d.Response, share-len(d.To)-256) // room for the name and the fields around
		trace.Parts = append(append(trace.Parts, normalized.Text(d.To+":")), answer.Parts...)
		trace.Status = worse(trace.Status, answer.Outcome())
		if trace.Error == nil {
			trace.Error = answer.Error
		}
	}
	if trace.Status != normalized.StatusFailed {
		trace.Error = nil
	}
	if over := len(trace.Parts) - limits.Parts; over > 0 {
		trace.Parts = append(trace.Parts[:limits.Parts-1], normalized.Text("(The rest of the answers was left out: too many parts.)"))
	}
	trace = fitted(trace, limits.Trace)
	return &trace
}

// answersOf returns the answers one by one. A first run has asked nobody.
func (s *Service) answersOf(ctx context.Context, turn exchange.TurnRecord) (answers []agents.Answer, err error) {
	if turn.Message.ReceivedTrace == nil {
		return nil, nil
	}
	calls, err := s.options.Store.Dispatches(ctx, turn.ID)
	if err != nil {
		return nil, err
	}
	for _, d := range calls {
		if d.Number > 0 && !d.Combine && d.Response != nil {
			answers = append(answers, agents.Answer{To: d.To, Response: *d.Response})
		}
	}
	return answers, nil
}

// worse joins the outcomes of several answers: one that failed or wants something first makes no success of all.
func worse(a, b string) string {
	for _, status := range []string{normalized.StatusFailed, normalized.StatusInputRequired} {
		if a == status || b == status {
			return status
		}
	}
	return normalized.StatusCompleted
}

const leftOut = "(A part of this answer was left out: too large.)"

// fitted shortens the largest parts of an answer, or leaves them out, until it is not over limit bytes as JSON.
func fitted(answer normalized.Response, limit int) normalized.Response {
	total := sizeOf(answer.AppendJSON)
	if total <= limit {
		return answer
	}
	answer.Parts = append([]normalized.Part(nil), answer.Parts...)
	sizes := make([]int, len(answer.Parts))
	for i := range answer.Parts {
		sizes[i] = sizeOf(answer.Parts[i].AppendJSON)
	}
	for range 2 * len(sizes) { // a text may be cut before it is left out
		largest := largestOf(sizes)
		if total <= limit || sizes[largest] <= len(leftOut)+64 {
			break
		}
		answer.Parts[largest] = shortened(answer.Parts[largest], limit/2)
		total -= sizes[largest]
		sizes[largest] = sizeOf(answer.Parts[largest].AppendJSON)
		total += sizes[largest]
	}
	for last := len(sizes) - 1; total > limit && last > 0; last-- { // many small ones
		total -= sizes[last] + 1
		answer.Parts = answer.Parts[:last]
	}
	return answer
}

// sizeOf measures JSON. What cannot be written is refused by the rules, not by its size.
func sizeOf(appendJSON func([]byte) ([]byte, error)) int {
	body, err := appendJSON(nil)
	if err != nil {
		return 0
	}
	return len(body)
}

func largestOf(sizes []int) (largest int) {
	for i, size := range sizes {
		if size > sizes[largest] {
			largest = i
		}
	}
	return largest
}

// shortened keeps the begin of a text and nothing of anything else.
func shortened(p normalized.Part, limit int) normalized.Part {
	if p.Kind != normalized.PartText || len(p.Content) <= limit || limit < len(leftOut) {
		return normalized.Text(leftOut)
	}
	p.Content = cut(p.Content, limit/2) + "\n\n" + leftOut
	return p
}
