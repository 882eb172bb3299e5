package bridge

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/task"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// present puts the asker's secret into the url of a demand.
type present func(policypart.Part) policypart.Part

// addressed returns the response of a reply with addresses of its stored files.
func (s *site) addressed(reply exchange.Reply) *normalized.Response {
	response := reply.Response
	if s.options.FileURL == nil || reply.ID == "" {
		return &response
	}

	response.Parts = slices.Clone(response.Parts)
	for i := range response.Parts {
		part := &response.Parts[i]
		if part.BytesRef == nil || part.BytesRef.Kind != normalized.BytesContentAddressed {
			continue
		}
		reference := *part.BytesRef
		reference.URL = s.options.FileURL(reply, *part)
		part.BytesRef = &reference
	}
	return &response
}

// withAddresses is a turn whose response is addressed.
func (s *site) withAddresses(turn exchange.TurnRecord) exchange.TurnRecord {
	if turn.Response != nil {
		turn.Response = s.addressed(exchange.Reply{
			ID: turn.ReplyID, TurnID: turn.ID, Agent: turn.Agent, Message: turn.Message, Channel: turn.Channel, Route: turn.Route, Response: *turn.Response,
		})
	}
	return turn
}

// textOf is a response as one text, for programs that show nothing else: texts, addresses of links and files, and what a
// demand says, the sources of the answer as numbered lines. Calls of tools are no part of it.
func textOf(response *normalized.Response, shown present) string {
	if response == nil {
		return ""
	}

	var pieces []string
	said, citations := normalized.Cited(response.Parts)
	for i, part := range said {
		if part.Kind == normalized.PartPolicy && i == len(said)-1 && len(citations) > 0 {
			pieces, citations = append(pieces, normalized.Sources(citations)), nil // a demand stands last
		}
		if piece := strings.TrimSpace(pieceOf(part, shown)); piece != "" {
			pieces = append(pieces, piece)
		}
	}

	if len(citations) > 0 {
		pieces = append(pieces, normalized.Sources(citations))
	}
	if len(pieces) == 0 && response.Error != nil {
		return response.Error.Message
	}
	return strings.Join(pieces, "\n\n")
}

func pieceOf(part normalized.Part, shown present) string {
	switch part.Kind {
	case normalized.PartText:
		return part.Content
	case normalized.PartLink:
		return described(titled(part.Title, part.URL), part.Description)
	case normalized.PartFile, normalized.PartArtifact:
		address := ""
		if part.BytesRef != nil {
			address = part.BytesRef.URL
		}
		return described(titled(cmp.Or(part.Name, part.MIME), address), part.About())
	case normalized.PartPolicy:
		if part.Policy != nil {
			return demandText(shown(*part.Policy))
		}
	}
	return ""
}

// described puts the description of a link or a file below its line.
func described(line, about string) string {
	if line == "" || about == "" {
		return line + about
	}
	return line + "\n" + about
}

func titled(title, address string) string {
	if title == "" || address == "" {
		return title + address
	}
	return title + ": " + address
}

// demandText is a demand in words: title, message and where to decide (message contract, section 8).
func demandText(part policypart.Part) string {
	lines := []string{}
	if part.Title != "" && part.Title != part.Message {
		lines = append(lines, part.Title)
	}
	lines = append(lines, part.Message)
	if part.URL != "" {
		lines = append(lines, titled(part.ActionLabel, part.URL))
	}
	return strings.Join(lines, "\n")
}

// othersRead reports whether the room of a message has other readers than its sender, as far as its program says. A session of a bridge has
// one user unless it names a room.
func (r route) othersRead() bool {
	return r.Room != roomDM && (r.Room != "" || r.Surface == surfaceConnector)
}

// plainly is the present of a plain text. A program that understands nothing else may show it in the room, where the address of a demand
// would be a key for everyone.
func (r route) plainly(shown present) present {
	if !r.othersRead() {
		return shown
	}
	return func(part policypart.Part) policypart.Part {
		part.URL = ""
		return part
	}
}

// partsOf are the parts of a response for programs that understand them. Only those that the text cannot carry whole are
// worth the bytes: nil where there is nothing but text.
func partsOf(response *normalized.Response, shown present) []normalized.Part {
	if response == nil {
		return nil
	}

	plain := true
	parts := make([]normalized.Part, 0, len(response.Parts))
	for _, part := range response.Parts {
		if part.Kind == normalized.PartPolicy && part.Policy != nil {
			demand := shown(*part.Policy)
			part.Policy = &demand
		}
		plain = plain && part.Kind == normalized.PartText && part.Citation == nil
		parts = append(parts, part)
	}

	if plain {
		return nil
	}

	return parts
}

// stamp is how the contract writes instants.
func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// statusOf is the state of a turn in the words of run control (agent runtime contract, section 6.6).
func statusOf(turn exchange.TurnRecord) string {
	switch turn.State {
	case exchange.StateAccepted, exchange.StateHeld:
		return task.StatusQueued
	case exchange.StateRunning:
		return task.StatusRunning
	case exchange.StateAnswered, exchange.StateSilent:
		return cmp.Or(turn.Response.Stopped(), envelope.StatusCompleted)
	case exchange.StateCancelled:
		return task.StatusCancelled
	case exchange.StateWaiting:
		switch {
		case turn.Reason == exchange.WaitingDispatch:
			return task.StatusRunning
		case strings.HasPrefix(turn.Reason, exchange.WaitingTool):
			return envelope.StatusRuntimeToolPending
		}
		return envelope.StatusApprovalRequired
	}
	return task.StatusFailed
}

// completed reports whether the agent has nothing more to ask.
func completed(turn exchange.TurnRecord) bool {
	return turn.State == exchange.StateSilent || turn.State == exchange.StateAnswered &&
		(turn.Response == nil || turn.Response.Status != normalized.StatusInputRequired)
}

// forWhom is the metadata of an answer that is for its asker alone: a room has other readers.
func forWhom(reply exchange.Reply, r route) map[string]any {
	metadata := map[string]any{}
	if !reply.Private() {
		return metadata
	}
	metadata["visibility"] = normalized.VisibilityDirect
	if r.Person != "" {
		metadata["sender_id"] = r.Person
	}
	return metadata
}

// runOf writes a turn as a run with its output (agent runtime contract, sections 6.1 and 6.6).
func runOf(turn exchange.TurnRecord, shown present) map[string]any {
	r := readRoute(turn.Route)
	run := map[string]any{
		"run_id": turn.ID, "session_id": r.Session, "agent": turn.Agent, "status": statusOf(turn), "completed": completed(turn),
		"started_at": stamp(turn.AcceptedAt), "updated_at": stamp(turn.UpdatedAt), "metadata": map[string]any{},
	}

	for name, value := range map[string]string{
		"task_id": r.Run, "connector_id": r.Connector, "external_conversation_id": r.Conversation, "external_message_id": r.ExternalID,
	} {
		if value != "" {
			run[name] = value
		}
	}

	if turn.Response == nil || turn.State == exchange.StateAccepted || turn.State == exchange.StateRunning {
		return run
	}

	reply := textOf(turn.Response, r.plainly(shown))
	run["reply"], run["messages"], run["metadata"] = reply, []any{}, forWhom(exchange.Reply{Response: *turn.Response}, r)

	if reply != "" {
		run["messages"] = []any{map[string]any{"role": "assistant", "content": reply}}
	}
	if parts := partsOf(turn.Response, shown); parts != nil {
		run["parts"] = parts
	}
	if _, citations := normalized.Cited(turn.Response.Parts); len(citations) > 0 {
		run["citations"] = citations
	}
	if r.Way == wayQueue && turn.ReplyID != "" {
		run["queue_id"] = queueID(turn.ReplyID)
	}

	return run
}
