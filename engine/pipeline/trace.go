package pipeline

import (
	"inbox/exchange"
	"inbox/normalized"
)

// traceOf gives the answers that a turn has got as its agent sees them: one as it is, several one after the other, each
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
	return &trace
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

// fitted leaves the largest parts of an answer out until it is not over limit bytes as JSON.
func fitted(answer normalized.Response, limit int) normalized.Response {
	parts := append([]normalized.Part(nil), answer.Parts...)
	answer.Parts = parts
	for range 2 * len(parts) { // a text may be cut before it is left out
		body, err := answer.AppendJSON(nil)
		if err != nil || len(body) <= limit {
			return answer
		}
		largest, size := -1, len(leftOut)+64
		for i := range parts {
			if part, err := parts[i].AppendJSON(nil); err == nil && len(part) > size {
				largest, size = i, len(part)
			}
		}
		if largest < 0 {
			return answer
		}
		parts[largest] = shortened(parts[largest], limit/2)
	}
	return answer
}

// shortened keeps the begin of a text and nothing of anything else.
func shortened(p normalized.Part, limit int) normalized.Part {
	if p.Kind != normalized.PartText || len(p.Content) <= limit || limit < len(leftOut) {
		return normalized.Text(leftOut)
	}
	p.Content = cut(p.Content, limit/2) + "\n\n" + leftOut
	return p
}
