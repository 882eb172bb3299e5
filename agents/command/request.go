package command

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"inbox/agents"
)

// Request is the document on the standard input, the same as the body of a webhook's request.
type Request = agents.Document

func request(turn agents.Turn, files placed) ([]byte, error) {
	written := turn.Document()
	written.Files = files.files
	document, err := json.Marshal(written)
	if err != nil {
		return nil, fmt.Errorf("encode the message for the program: %w", err)
	}
	return document, nil
}

// environment is what the operator allows and what names the turn; nothing else of the server's reaches a program.
func (a *Agent) environment(turn agents.Turn, files placed) []string {
	variables := []string{
		reserved + "AGENT=" + printable(turn.Agent),
		reserved + "TURN_ID=" + printable(turn.ID),
		reserved + "ATTEMPT=" + strconv.Itoa(turn.Attempt),
		reserved + "IDEMPOTENCY_KEY=" + printable(turn.Step()),
	}

	if files.message != "" {
		variables = append(variables, reserved+"FILES="+files.message)
	}
	if files.answer != "" {
		variables = append(variables, reserved+"ANSWER_FILES="+files.answer)
	}
	for _, entry := range a.options.Environment {
		if strings.Contains(entry, "=") {
			variables = append(variables, entry)
		} else if value, set := os.LookupEnv(entry); set {
			variables = append(variables, entry+"="+value)
		}
	}

	return variables
}

// printable drops NUL, with which no program could be started.
func printable(value string) string { return strings.ReplaceAll(value, "\x00", "") }
