package remote

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// demanding makes a demand of a new task and completes one that goes on.
func demanding(state a2a.TaskState, policy string) script {
	return func(ctx context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
		if call.StoredTask != nil {
			if yield(a2a.NewArtifactEvent(call, a2a.NewTextPart("done after: "+spoken(call.Message))), nil) {
				yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCompleted, nil), nil)
			}
			return
		}
		message := say("Please see https://phish.example/ for this.")
		var object map[string]any
		if err := json.Unmarshal([]byte(policy), &object); err != nil {
			panic(err)
		}
		message.SetMeta("mentionable", map[string]any{"policy": object})
		if yield(a2a.NewSubmittedTask(call, call.Message), nil) &&
			yield(a2a.NewStatusUpdateEvent(call, state, message), nil) && state == a2a.TaskStateAuthRequired {
			<-ctx.Done() // the SDK waits for the end of such a task
			yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCanceled, nil), nil)
		}
	}
}

func TestDemands(t *testing.T) {
	const state = `"data":{"dev.mentionable.state":"very-secret"}`
	tests := map[string]struct {
		state  a2a.TaskState
		policy string
		kind   string // of the policy part; empty = words
		text   string
		url    string
		status string
	}{
		"consent with a state": {
			a2a.TaskStateAuthRequired, `{"kind":"consent_required","message":"May I?","url":"https://agent.example/consent?s=1",` + state + `}`,
			policypart.ConsentRequired, "May I?", "", normalized.StatusInputRequired,
		},
		"consent by a plain yes": {
			a2a.TaskStateInputRequired, `{"kind":"consent_required","message":"May I?"}`,
			policypart.ConsentRequired, "May I?", "", normalized.StatusInputRequired,
		},
		"consent elsewhere": {
			a2a.TaskStateAuthRequired, `{"kind":"consent_required","title":"Calendar","message":"May I?","url":"https://agent.example/consent"}`,
			"", "Calendar\n\nMay I?", "", normalized.StatusInputRequired,
		},
		"consent here": {
			a2a.TaskStateAuthRequired, `{"kind":"consent_required","message":"May I?","url":"https://inbox.example/policy/x"}`,
			policypart.ConsentRequired, "May I?", "https://inbox.example/policy/x", normalized.StatusInputRequired,
		},
		"login elsewhere": {
			a2a.TaskStateAuthRequired, `{"kind":"unauthorized","message":"Who are you?","url":"https://agent.example/","auth_challenges":[{"scheme":"Bearer","login":"theirs"}]}`,
			"", "Who are you?", "", normalized.StatusInputRequired,
		},
		"login here": {
			a2a.TaskStateAuthRequired, `{"kind":"unauthorized","message":"Who are you?","url":"https://inbox.example/","auth_challenges":[{"scheme":"Bearer","login":"theirs"}]}`,
			policypart.Unauthorized, "Who are you?", "https://inbox.example/", normalized.StatusInputRequired,
		},
		"payment": {
			a2a.TaskStateInputRequired, `{"kind":"payment_required","message":"Pay first.","amount":"1.00","currency":"EUR","expires_at":"2030-01-01T00:00:00Z","url":"https://inbox.example/pay","accepts":[{"payTo":"thief"}],` + state + `}`,
			"", "Pay first.\n\n1.00 EUR", "", normalized.StatusInputRequired,
		},
		"refusal": {
			a2a.TaskStateFailed, `{"kind":"too_many_requests","message":"Tomorrow.","retry_after_seconds":60,"url":"https://agent.example/why"}`,
			policypart.TooManyRequests, "Tomorrow.", "", normalized.StatusFailed,
		},
		"refusal of an unknown kind": {
			a2a.TaskStateRejected, `{"kind":"bad_weather","message":"It rains."}`, "bad_weather", "It rains.", "", normalized.StatusFailed,
		},
		"refusal against the rules": {
			a2a.TaskStateRejected, `{"kind":"too_many_requests","message":"Tomorrow."}`, "", "Tomorrow.", "", normalized.StatusFailed,
		},
		"no demand": {
			a2a.TaskStateInputRequired, `{"message":"nothing"}`, "", "Please see https://phish.example/ for this.", "", normalized.StatusInputRequired,
		},
	}
	for name, test := range tests {
		for _, way := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				server := startUpstream(t, way, true, demanding(test.state, test.policy))
				agent := newAgent(t, server.URL, func(o *Options) { o.BaseURL = &url.URL{Scheme: "https", Host: "inbox.example"} })
				got := mustHandle(t, agent, turnOf("1", "x")).response
				document, _ := json.Marshal(got)
				if strings.Contains(string(document), "very-secret") || strings.Contains(string(document), "theirs") {
					t.Errorf("a secret was shown: %s", document)
				}
				policy := got.Policy()
				switch {
				case got.Status != test.status:
					t.Errorf("status %s, want %s", got.Status, test.status)
				case test.kind == "" && (policy != nil || textOf(got) != test.text):
					t.Errorf("got %s, want the words %q", document, test.text)
				case test.kind != "" && (policy == nil || policy.Kind != test.kind || policy.Message != test.text || policy.URL != test.url):
					t.Errorf("got %s", document)
				}
			})
		}
	}
}

// TestDecisionGoesBack takes the turn up again as the engine does when its own page was answered.
func TestDecisionGoesBack(t *testing.T) {
	policy := `{"kind":"consent_required","message":"May I?","data":{"dev.mentionable.state":"very-secret"}}`
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			server := startUpstream(t, way, true, demanding(a2a.TaskStateInputRequired, policy))
			agent := newAgent(t, server.URL, nil)
			turn := turnOf("1", "plan my day")
			mustHandle(t, agent, turn)
			turn.Attempt = 2
			turn.Message.PolicyResolution = &policypart.Resolution{
				Kind: policypart.ConsentRequired, InReplyToState: "ours", Outcome: policypart.OutcomeGranted, ResolvedAt: identity.Now(),
				ResolvedBy: &policypart.Resolver{Issuer: "inbox.example", Subject: "alice", Method: "m"},
			}
			if got := textOf(mustHandle(t, agent, turn).response); got != "done after: Yes, go on: this is granted." {
				t.Errorf("got %q", got)
			}
			sent := server.received()
			if len(sent) != 2 || sent[0].TaskID != sent[1].TaskID || sent[0].ID == sent[1].ID {
				t.Fatalf("%d messages to %q and %q", len(sent), sent[0].TaskID, sent[1].TaskID)
			}
			mentionable, _ := sent[1].Metadata["mentionable"].(map[string]any)
			resolution, _ := mentionable["policy_resolution"].(map[string]any)
			if resolution["in_reply_to_state"] != "very-secret" || resolution["outcome"] != "granted" || resolution["resolved_by"] != nil {
				t.Errorf("resolution %v", resolution)
			}
			if got := textOf(mustHandle(t, agent, turn).response); !strings.HasPrefix(got, "done after") || len(server.received()) != 2 {
				t.Errorf("the repeat got %q after %d messages", got, len(server.received()))
			}
		})
	}
}
