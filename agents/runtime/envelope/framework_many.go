package envelope

import (
	"errors"
	"fmt"

	"inbox/agents/runtime/value"
)

// ImportMany imports a conversation. An observation says nowhere which tool gave it, so it takes the name from the
// oldest unanswered action of the same agent; calls and results then stand in pairs. Errors name the message's position.
func ImportMany(given any) ([]Envelope, error) {
	list, is := value.List(given)
	if !is {
		return nil, odd("messages", "must be a list")
	}
	envelopes := make([]Envelope, 0, len(list))
	open := map[string][]string{} // names of called tools by agent
	for i, item := range list {
		e, err := Import(item)
		if err != nil {
			return nil, at(i, err)
		}
		agent := value.Text(value.Assoc(item)["agent_key"])
		switch {
		case e.Type == TypeToolCall:
			open[agent] = append(open[agent], e.ToolName())
		case (e.Type == TypeToolResult || e.Type == TypeError) && len(open[agent]) > 0:
			if e.Type == TypeToolResult && open[agent][0] != "" {
				e.Payload["tool_name"] = open[agent][0]
			}
			open[agent] = open[agent][1:]
		}
		envelopes = append(envelopes, e)
	}
	return envelopes, nil
}

func at(i int, err error) error {
	problem, is := errors.AsType[*Error](err)
	if !is {
		return err
	}
	return &Error{Code: problem.Code, Path: fmt.Sprintf("messages[%d].%s", i, problem.Path), Reason: problem.Reason}
}
