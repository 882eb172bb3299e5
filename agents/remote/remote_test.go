package remote

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

func TestConformance(t *testing.T) {
	for _, way := range ways {
		for name, streaming := range map[string]bool{"streamed": true, "polled": false} {
			t.Run(way+" "+name, func(t *testing.T) {
				agenttest.Suite{
					New: func(t *testing.T) agents.Agent {
						return newAgent(t, startUpstream(t, way, streaming, growing).URL, nil)
					},
					NewStuck: func(t *testing.T) agents.Agent {
						return newAgent(t, startUpstream(t, way, streaming, stuck).URL, nil)
					},
				}.Run(t)
			})
		}
	}
}

// stuck works for ever.
func stuck(ctx context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
	if yield(a2a.NewSubmittedTask(call, call.Message), nil) && yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateWorking, nil), nil) {
		<-ctx.Done()
	}
}

func TestAnswerGrows(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			server := startUpstream(t, way, true, growing)
			agent := newAgent(t, server.URL, nil)
			out := mustHandle(t, agent, turnOf("1", "hello"))
			if got := textOf(out.response); got != "You **said**: hello" {
				t.Errorf("answer %q", got)
			}
			var seen strings.Builder
			for _, delta := range out.deltas {
				if delta.Part != nil {
					seen.WriteString(delta.Part.Content)
				}
				seen.WriteString(delta.Text)
			}
			if want := "Let me think.You **said**: hello"; seen.String() != want {
				t.Errorf("shown while it grew: %q, want %q", seen.String(), want)
			}
			if mime := out.response.Parts[0].MIME; mime != normalized.MIMEMarkdown {
				t.Errorf("text of type %s, want that of the card", mime)
			}
		})
	}
}

func TestThreadKeepsItsContext(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			server := startUpstream(t, way, true, growing)
			state := newMemory()
			mustHandle(t, newAgent(t, server.URL, func(o *Options) { o.State = state }), turnOf("1", "one"))
			restarted := newAgent(t, server.URL, func(o *Options) { o.State = state })
			mustHandle(t, restarted, turnOf("2", "two"))
			other := turnOf("3", "three")
			other.Message.ThreadID = "https://peer.example/threads/2"
			mustHandle(t, restarted, other)
			got := server.received()
			if got[1].ContextID == "" || got[1].ContextID != got[0].ContextID || got[2].ContextID == got[0].ContextID {
				t.Errorf("contexts %q, %q, %q", got[0].ContextID, got[1].ContextID, got[2].ContextID)
			}
			if got[0].ID != "0199-1" {
				t.Errorf("message id %q, want that of the turn", got[0].ID)
			}
		})
	}
}

// asking wants a city before it answers.
func asking(_ context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
	if call.StoredTask == nil {
		if yield(a2a.NewSubmittedTask(call, call.Message), nil) {
			yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateInputRequired, say("Which city?")), nil)
		}
		return
	}
	if yield(a2a.NewArtifactEvent(call, a2a.NewTextPart("Rain in "+spoken(call.Message))), nil) {
		yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCompleted, nil), nil)
	}
}

func TestQuestionIsAnsweredByTheNextMessage(t *testing.T) {
	for _, way := range ways {
		for name, streaming := range map[string]bool{"streamed": true, "polled": false} {
			t.Run(way+" "+name, func(t *testing.T) {
				server := startUpstream(t, way, streaming, asking)
				state := newMemory()
				fresh := func() *Agent { return newAgent(t, server.URL, func(o *Options) { o.State = state }) }
				asked := mustHandle(t, fresh(), turnOf("1", "weather?")).response
				if asked.Status != normalized.StatusInputRequired || textOf(asked) != "Which city?" {
					t.Fatalf("got %s %q", asked.Status, textOf(asked))
				}
				told := mustHandle(t, fresh(), turnOf("2", "Graz")).response
				if told.Outcome() != normalized.StatusCompleted || textOf(told) != "Rain in Graz" {
					t.Fatalf("got %s %q", told.Status, textOf(told))
				}
				again := mustHandle(t, fresh(), turnOf("3", "and now?")).response
				if textOf(again) != "Which city?" {
					t.Errorf("a task that is over was continued: %q", textOf(again))
				}
			})
		}
	}
}

func TestQuestionIsNotAnsweredBySomebodyElse(t *testing.T) {
	server := startUpstream(t, wayRPC, true, asking)
	agent := newAgent(t, server.URL, nil)
	mustHandle(t, agent, turnOf("1", "weather?"))
	stranger := turnOf("2", "Graz")
	stranger.Message.Sender.Identities = nil
	stranger.Message.Sender.Address = identity.Stated("@mallory@evil.example")
	if got := mustHandle(t, agent, stranger).response; textOf(got) != "Which city?" {
		t.Errorf("got %q", textOf(got))
	}
}

func TestPlainMessage(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			server := startUpstream(t, way, true, func(_ context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
				answer := a2a.NewMessageForTask(a2a.MessageRoleAgent, call, a2a.NewTextPart("pong"))
				yield(answer, nil)
			})
			agent := newAgent(t, server.URL, nil)
			if got := textOf(mustHandle(t, agent, turnOf("1", "ping")).response); got != "pong" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	tests := map[string]struct {
		state a2a.TaskState
		said  *a2a.Message
		code  string
		text  string
	}{
		"rejected":  {a2a.TaskStateRejected, say("Only\nPDF, please."), codeRejected, "The agent did not take this message: Only PDF, please."},
		"failed":    {a2a.TaskStateFailed, nil, codeFailed, "The agent could not answer this message."},
		"cancelled": {a2a.TaskStateCanceled, nil, codeCanceled, "The agent stopped working on this message."},
	}
	for name, test := range tests {
		for _, way := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				server := startUpstream(t, way, true, func(_ context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
					if yield(a2a.NewSubmittedTask(call, call.Message), nil) {
						yield(a2a.NewStatusUpdateEvent(call, test.state, test.said), nil)
					}
				})
				got := mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x")).response
				if got.Status != normalized.StatusFailed || got.Error == nil || got.Error.Code != test.code || textOf(got) != test.text {
					t.Errorf("got %s %+v %q", got.Status, got.Error, textOf(got))
				}
			})
		}
	}
}

func TestChainEndsHere(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	agent := newAgent(t, server.URL, nil)
	turn := turnOf("1", "x")
	turn.Message.RecipientCapabilities.AgentChain = &normalized.AgentChain{Hop: 3, MaxHops: 4}
	mustHandle(t, agent, turn)
	mentionable, _ := server.received()[0].Metadata[mentionableKey].(map[string]any)
	chain, _ := mentionable[chainKey].(map[string]any)
	if chain["hop"] != 4.0 || chain["max_hops"] != 4.0 || chain["is_final"] == nil {
		t.Errorf("chain %v", chain)
	}
	last := turnOf("2", "x")
	last.Message.RecipientCapabilities.AgentChain = &normalized.AgentChain{Hop: 4, MaxHops: 4, IsFinal: true}
	if got := mustHandle(t, agent, last).response; got.Status != normalized.StatusFailed || len(server.received()) != 1 {
		t.Errorf("got %s after %d messages", got.Status, len(server.received()))
	}
}

// TestRemoteAgentGetsTheSurface: parts of a message have no place for subject and recipients.
func TestRemoteAgentGetsTheSurface(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	turn := turnOf("1", "x")
	turn.Message.Surface = &normalized.Surface{Channel: "email", Subject: "Lamps", Cc: []normalized.SurfaceRecipient{{Address: "@bo@other.test"}}}
	mustHandle(t, newAgent(t, server.URL, nil), turn)
	mentionable, _ := server.received()[0].Metadata[mentionableKey].(map[string]any)
	want := map[string]any{"channel": "email", "subject": "Lamps", "cc": []any{map[string]any{"address": "@bo@other.test"}}}
	if diff := cmp.Diff(want, mentionable[surfaceKey]); diff != "" {
		t.Error(diff)
	}
}

func TestNewRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		field  string
	}{
		"no address":          {func(o *Options) { o.CardURL = "" }, "card_url"},
		"other scheme":        {func(o *Options) { o.CardURL = "ftp://a.example/" }, "card_url"},
		"password":            {func(o *Options) { o.CardURL = "https://me:secret@a.example/" }, "card_url"},
		"no client":           {func(o *Options) { o.Client = nil }, "client"},
		"no state":            {func(o *Options) { o.State = nil }, "state"},
		"negative":            {func(o *Options) { o.TimeLimit = -1 }, "time_limit"},
		"two ways to log in":  {func(o *Options) { o.Token, o.Credentials = "x", &ClientCredentials{TokenURL: "https://a.example/"} }, "token"},
		"token with newline":  {func(o *Options) { o.Token = "x\ny" }, "token"},
		"no token address":    {func(o *Options) { o.Credentials = &ClientCredentials{ClientID: "a", ClientSecret: "b"} }, "token_url"},
		"no client id":        {func(o *Options) { o.Credentials = &ClientCredentials{TokenURL: "https://a.example/"} }, "client_id"},
		"no client secret":    {func(o *Options) { o.Credentials = &ClientCredentials{TokenURL: "https://a.example/", ClientID: "a"} }, "client_secret"},
		"fragment":            {func(o *Options) { o.CardURL = "https://a.example/#x" }, "card_url"},
		"negative file limit": {func(o *Options) { o.MaxFileBytes = -1 }, "max_bytes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			good := newAgent(t, "https://a.example/", nil).options
			test.change(&good)
			_, err := New(good)
			if got := fault.Of(err); err == nil || got.Kind != fault.Malformed || got.Field != test.field {
				t.Errorf("got %v in %q, want %q", err, got.Field, test.field)
			}
		})
	}
}

// TestGuideTellsTheTruth compares the guide with the constants that it states.
func TestGuideTellsTheTruth(t *testing.T) {
	content, err := os.ReadFile("../../docs/agents/remote.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := string(content)
	for _, want := range []string{
		"`agents.timeout`, 2 minutes by default", "| file up to 4 MiB |", "| one response, a stream being one | 8 MiB |", fmt.Sprintf("forgotten %d days", DefaultThreadLife/(24*time.Hour)),
		fmt.Sprintf("comments count as life | %d s", DefaultIdleLimit/time.Second), emptyText, wellKnown,
		fmt.Sprintf("8 MiB, %d artifacts", maxArtifacts), fmt.Sprintf("| %d bytes;", maxIDBytes), fmt.Sprintf("every %d minutes", cardLife/time.Minute),
		fmt.Sprintf("| card | %d KiB, %d s |", maxCardBytes>>10, cardLimit/time.Second), fmt.Sprintf("over %d KiB", normalized.MaxInlineBytes>>10),
		"inbox_remote_exchanges_total", "inbox_remote_recoveries_total", "inbox_remote_seconds",
	} {
		if !strings.Contains(guide, want) {
			t.Errorf("the guide does not say %q", want)
		}
	}
	if DefaultTimeLimit != 270*time.Second || DefaultMaxFileBytes != 4<<20 || DefaultMaxResponseBytes != 8<<20 || maxAnswer != 8<<20 ||
		DefaultPollInterval != 500*time.Millisecond || maxResubscribes != 5 {
		t.Error("a limit changed: change the guide, too")
	}
}
