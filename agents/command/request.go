package command

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"inbox/agents"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// Version of the document on the standard input. It changes only when a program that ignores unknown keys would misread
// one.
const Version = 1

// Request is the document on the standard input, the same as the body of a webhook's request.
type Request struct {
	Version                     int                `json:"version"`
	Turn                        RequestTurn        `json:"turn"`
	Message                     normalized.Message `json:"message"`
	HistoryCacheBreakpointAfter *int               `json:"history_cache_breakpoint_after,omitempty"`
	SentAt                      identity.Time      `json:"sent_at"`
}

// RequestTurn names the turn. ID is the same in every attempt.
type RequestTurn struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
	Agent   string `json:"agent"`
}

func request(turn agents.Turn) ([]byte, error) {
	document, err := json.Marshal(Request{
		Version:                     Version,
		Turn:                        RequestTurn{ID: turn.ID, Attempt: turn.Attempt, Agent: turn.Agent},
		Message:                     turn.Message,
		HistoryCacheBreakpointAfter: turn.HistoryCacheBreakpointAfter,
		SentAt:                      identity.Now(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode the message for the program: %w", err)
	}
	return document, nil
}

// environment is what the operator allows and what names the turn; nothing else of the server's reaches a program.
func (a *Agent) environment(turn agents.Turn) []string {
	variables := []string{
		reserved + "AGENT=" + printable(turn.Agent),
		reserved + "TURN_ID=" + printable(turn.ID),
		reserved + "ATTEMPT=" + strconv.Itoa(turn.Attempt),
		reserved + "IDEMPOTENCY_KEY=" + printable(step(turn)),
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

// step names what is asked: the turn, and with what it was taken up again.
func step(turn agents.Turn) string {
	m := turn.Message
	if m.PolicyResolution == nil && m.ReceivedTrace == nil {
		return turn.ID
	}
	brought, err := json.Marshal(struct {
		Resolution *policypart.Resolution `json:"policy_resolution"`
		Trace      *normalized.Response   `json:"received_trace"`
	}{m.PolicyResolution, m.ReceivedTrace})
	if err != nil {
		return turn.ID // the document cannot be written either
	}
	sum := sha256.Sum256(brought)
	return turn.ID + "-" + hex.EncodeToString(sum[:8])
}
