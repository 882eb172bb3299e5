package peer

import "strings"

const stateCompleted = "TASK_STATE_COMPLETED"

// cardDocument is what we read of an agent card.
type cardDocument struct {
	Name                string `json:"name"`
	SupportedInterfaces []struct {
		URL             string `json:"url"`
		ProtocolBinding string `json:"protocolBinding"`
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"supportedInterfaces"`
}

type messageDocument struct {
	Parts []partDocument `json:"parts"`
}

type partDocument struct {
	Text string `json:"text"`
}

type taskStatus struct {
	State   string           `json:"state"`
	Message *messageDocument `json:"message"`
}

// taskDocument is what we read of a task.
type taskDocument struct {
	ID        string     `json:"id"`
	ContextID string     `json:"contextId"`
	Status    taskStatus `json:"status"`
	Artifacts []struct {
		Parts []partDocument `json:"parts"`
	} `json:"artifacts"`
}

// ended reports whether waiting longer is of no use: the task is terminal or needs something from us.
func (t taskDocument) ended() bool {
	return t.Status.State != "TASK_STATE_SUBMITTED" && t.Status.State != "TASK_STATE_WORKING"
}

// asks reports whether the task waits for a decision.
func (t taskDocument) asks() bool {
	return t.Status.State == "TASK_STATE_AUTH_REQUIRED" || t.Status.State == "TASK_STATE_INPUT_REQUIRED"
}

// text returns the text of the artifacts, or of the last status message when there are none.
func (t taskDocument) text() string {
	var lines []string
	for _, artifact := range t.Artifacts {
		lines = append(lines, partsText(artifact.Parts))
	}
	if len(lines) == 0 && t.Status.Message != nil {
		lines = append(lines, partsText(t.Status.Message.Parts))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func partsText(parts []partDocument) string {
	var text strings.Builder
	for _, part := range parts {
		text.WriteString(part.Text)
	}
	return text.String()
}
