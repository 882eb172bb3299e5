package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

// settling is a message that brings the answer to a demand.
func settling(t *testing.T, id string, to load.Task, state, outcome string) []byte {
	t.Helper()
	message := map[string]any{
		"messageId": id, "role": "ROLE_USER", "parts": []map[string]string{{"text": "here is my answer"}},
		"metadata": map[string]any{"mentionable": map[string]any{"policy_resolution": map[string]any{
			"kind": "consent_required", "in_reply_to_state": state, "outcome": outcome, "resolved_at": time.Now().UTC().Format(time.RFC3339),
		}}},
	}
	if to.ID != "" {
		message["taskId"] = to.ID
	}
	if to.ContextID != "" {
		message["contextId"] = to.ContextID
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{"message": message}})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func stateOf(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

func TestDemandIsSettledByTheAskersOwnMessageAlone(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		agent := startScripted(t, asksForConsent)
		s := start(t, instance.Settings{Database: database, Agents: agent.table("booker", "")})
		ann, mallory := s.a2aPeer("booker", "ann"), s.a2aPeer("booker", "mallory")
		ask := func(id string) (load.Task, string) {
			t.Helper()
			task, err := ann.Send(t.Context(), load.SendBody(id, "book a table", false))
			if err != nil {
				t.Fatal(err)
			}
			return task, stateOf(findLink(t, texts(task)))
		}
		refused := func(name, code string, peer load.A2APeer, body []byte) {
			t.Helper()
			before := len(auditCodes(t, s.Instance))
			if task, err := peer.Send(t.Context(), body); err == nil && task.Status.State == completed {
				t.Errorf("%s: the demand was settled: %s", name, texts(task))
			}
			if codes := auditCodes(t, s.Instance)[before:]; !slices.Contains(codes, code) {
				t.Errorf("%s: on record %v; want %s", name, codes, code)
			}
		}

		task, state := ask("first")
		refused("unknown state", "state:unknown", ann, settling(t, "m-1", load.Task{}, strings.Repeat("A", 43), "granted"))
		refused("another thread", "state:thread", ann, settling(t, "m-2", load.Task{}, state, "granted"))
		refused("another person", "state:thread", mallory, settling(t, "m-3", load.Task{}, state, "granted"))
		answer, err := ann.Send(t.Context(), settling(t, "m-4", task, state, "granted"))
		if err != nil || answer.Status.State != completed || !strings.Contains(texts(answer), "table is booked") {
			t.Fatalf("the asker's own message: %s %q, %v", answer.Status.State, texts(answer), err)
		}
		again, err := ann.Send(t.Context(), settling(t, "m-4", task, state, "granted"))
		if err != nil || again.ID != answer.ID || again.Status.State != completed {
			t.Errorf("the same message again: %s, %v; want the same task", again.Status.State, err)
		}
		refused("used", "state:used", ann, settling(t, "m-5", load.Task{ContextID: task.ContextID}, state, "granted"))

		task, state = ask("second")
		asked := len(agent.questions())
		answer, err = ann.Send(t.Context(), settling(t, "m-6", task, state, "denied"))
		if err != nil || answer.Status.State == completed {
			t.Errorf("declined by message: %s, %v", answer.Status.State, err)
		}
		if len(agent.questions()) != asked {
			t.Error("the agent ran although its demand was declined")
		}
	})
}
