package chat

import (
	"slices"
	"strings"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/normalized"
)

// Sentences for states in which the agent itself said nothing.
const (
	sentenceFailed  = "The agent could not answer this message."
	sentenceRefused = "The agent does not take this message."
	sentenceHeld    = "The message waits until the operator of this server lets it pass."
	sentenceWaiting = "The message waits for a decision that is made outside of this conversation."
	sentenceTool    = "The agent waits for the result of a tool that is executed at your side."
	sentenceWorking = "The agent is still working. Send the same request again, with the same id, to get its answer."
)

// output is the chat output of a turn (agent runtime contract, section 6.1).
func (a *Adapter) output(found run) contract.Output {
	answer := a.answer(found)
	return contract.Output{SessionID: answer.Session, RunID: answer.RunID, Reply: answer.Reply, Completed: answer.Completed}
}

// Statuses of run control (agent runtime contract, section 6.6).
const (
	statusCompleted = "completed"
	statusFailed    = "failed"
	statusCancelled = "cancelled"
	statusApproval  = "approval_required"
	statusInput     = "input_required"
	statusTool      = "runtime_tool_pending"
	statusRunning   = "running"
	statusQueued    = "queued"
)

func statusOf(turn exchange.TurnRecord) string {
	switch turn.State {
	case exchange.StateAccepted:
		return statusQueued
	case exchange.StateRunning:
		return statusRunning
	case exchange.StateSilent:
		return statusCompleted
	case exchange.StateCancelled:
		return statusCancelled
	case exchange.StateHeld:
		return statusApproval
	case exchange.StateFailed, exchange.StateRefused:
		return statusFailed
	case exchange.StateWaiting:
		return waitingStatus(turn)
	}
	return answeredStatus(turn.Response)
}

func waitingStatus(turn exchange.TurnRecord) string {
	switch {
	case strings.HasPrefix(turn.Reason, exchange.WaitingTool):
		return statusTool
	case exchange.GoesOnByItself(turn):
		return statusRunning
	case strings.HasPrefix(turn.Reason, "payment"), strings.HasPrefix(turn.Reason, "input"):
		return statusInput
	}
	return statusApproval
}

// answeredStatus never takes a demand or a refusal for success (message contract, section 8).
func answeredStatus(response *normalized.Response) string {
	switch {
	case response == nil:
		return statusCompleted
	case response.Status == normalized.StatusInputRequired:
		return statusInput
	case response.Status == normalized.StatusFailed:
		return statusFailed
	case response.Policy() != nil:
		return statusApproval
	}
	return statusCompleted
}

// reply is what the agent says in words, Markdown as it wrote it; a sentence of ours where it says nothing and somebody
// has to know why.
func (a *Adapter) reply(turn exchange.TurnRecord) string {
	if turn.Response != nil {
		if text := normalized.PlainText(a.presented(turn.Response.Parts)); text != "" {
			return text
		}
	}
	switch turn.State {
	case exchange.StateFailed:
		return sentenceFailed
	case exchange.StateRefused:
		return sentenceRefused
	case exchange.StateHeld:
		return sentenceHeld
	case exchange.StateWaiting:
		if a.askerRuns(turn) {
			return sentenceTool
		}
		return sentenceWaiting
	}
	return ""
}

// presented puts the asker's secret into the address of a demand.
func (a *Adapter) presented(parts []normalized.Part) []normalized.Part {
	at := slices.IndexFunc(parts, func(part normalized.Part) bool { return part.Kind == normalized.PartPolicy && part.Policy != nil })
	if at < 0 {
		return parts
	}
	parts = slices.Clone(parts)
	shown := a.options.Present(*parts[at].Policy)
	parts[at].Policy = &shown
	return parts
}
