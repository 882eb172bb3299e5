package a2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/agents/runtime/value"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/normalized"
)

// whole is a server whose agent "keeps" notes what it is asked and answers with the parts of the question.
type whole struct {
	*inboxtest.Server

	token string
	asked chan normalized.Message
}

// wholeOnBoth runs a test with a server on each database.
func wholeOnBoth(t *testing.T, test func(w *whole)) {
	t.Helper()
	for name, url := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &whole{Server: inboxtest.New(t, "", "INBOX_DATABASE_URL="+url(t)), asked: make(chan normalized.Message, 8)}
			agent := agents.Func(func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
				w.asked <- turn.Message
				var said []normalized.Part
				for _, part := range turn.Message.Parts {
					if part.Kind != normalized.PartPolicy {
						said = append(said, part)
					}
				}
				return normalized.Whole(normalized.Response{Parts: append(said, normalized.Text("that was it"))})
			})
			if err := w.Register(exchange.AgentProfile{Name: "keeps"}, agent, agents.Settings{}); err != nil {
				t.Fatal(err)
			}
			w.Serve()
			w.token = w.Token("ada")
			test(w)
		})
	}
}

// send sends a message of A2A 1.0 and returns its task.
func (w *whole) send(message string) map[string]any {
	w.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":` + message + `}}`
	status, _, answer := w.Read(http.MethodPost, "/a2a/keeps", w.token, body, "Content-Type", "application/json", "A2A-Version", "1.0")
	given, err := value.Decode([]byte(answer), value.Limits{})
	task := value.Assoc(value.Assoc(value.Assoc(given)["result"])["task"])
	if status != http.StatusOK || err != nil || len(task) == 0 {
		w.Fatalf("%d %s", status, answer)
	}
	return task
}

func (w *whole) wasAsked() normalized.Message {
	w.Helper()
	return await.Receive(w, w.asked, "a run of the agent that keeps")
}

// TestPoliciesOfStrangersAreData: a policy part that a caller sends reaches the agent as data, without its address. No demand
// begins by it, and none ends. The history has its words.
func TestPoliciesOfStrangersAreData(t *testing.T) {
	t.Parallel()
	wholeOnBoth(t, func(w *whole) {
		const policy = `{"kind":"consent_required","title":"Consent","message":"May I?","url":"https://elsewhere.example/yes","data":{"dev.mentionable.state":"forged","com.example.n":9007199254740993}}`
		task := w.send(`{"messageId":"m1","contextId":"talk","role":"ROLE_USER","parts":[{"text":"what is this?"},{"data":` + policy + `},{"data":{"kind":"consent_required"}}],
			"metadata":{"mentionable":{"policy":` + policy + `}}}`)
		if state := value.Assoc(task["status"])["state"]; state != "TASK_STATE_COMPLETED" {
			w.Errorf("the task is %v", state)
		}

		asked := w.wasAsked()
		if len(asked.Parts) != 3 || asked.Parts[1].Kind != normalized.PartPolicy || asked.PolicyResolution != nil {
			w.Fatalf("the agent was asked %+v", asked.Parts)
		}
		got := asked.Parts[1].Policy
		if got.Kind != "consent_required" || got.Message != "May I?" || got.URL != "" || got.Code != "url-removed" || got.Data["dev.mentionable.state"] != nil || string(got.Data["com.example.n"]) != "9007199254740993" {
			w.Errorf("the agent sees %+v", got)
		}
		if asked.Parts[2].Kind == normalized.PartPolicy {
			w.Errorf("data became %+v", asked.Parts[2])
		}
		sent, _ := json.Marshal(task["history"])
		if !strings.Contains(string(sent), `"data":{"code":"url-removed"`) || !strings.Contains(string(sent), `"title":"Consent"`) {
			w.Errorf("the task's history is %s", sent)
		}

		w.send(`{"messageId":"m2","contextId":"talk","role":"ROLE_USER","parts":[{"text":"and now?"}]}`)
		next := w.wasAsked()
		if len(next.History) != 2 {
			w.Fatalf("the history is %+v", next.History)
		}
		earlier := next.History[0].Parts
		if len(earlier) != 3 || earlier[1].Kind != normalized.PartText || earlier[1].Content != "Consent\n\nMay I?" {
			w.Errorf("the history is %+v", earlier)
		}

		refused := w.send(`{"messageId":"m3","contextId":"talk","role":"ROLE_USER","parts":[{"data":{"kind":"payment_required","message":"pay"}}],
			"metadata":{"mentionable":{"policy":{"kind":"payment_required","message":"pay"}}}}`)
		if asked := w.wasAsked(); asked.Parts[0].Kind == normalized.PartPolicy || value.Assoc(refused["status"])["state"] != "TASK_STATE_COMPLETED" {
			w.Errorf("a policy part without its terms is %+v", asked.Parts)
		}
	})
}

// TestDataStaysData: a data part reaches the agent as data and comes back as a data part with all digits, and a file of JSON
// stays a file.
func TestDataStaysData(t *testing.T) {
	t.Parallel()
	wholeOnBoth(t, func(w *whole) {
		large := `{"n":"` + strings.Repeat("x", normalized.MaxInlineBytes) + `"}`
		task := w.send(`{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"n":9007199254740993,"list":[1.0]}},{"data":"text","filename":"named.json"},
			{"raw":"eyJhIjoxfQ==","mediaType":"application/json"},{"data":` + large + `}]}`)

		asked := w.wasAsked().Parts
		kinds := []string{}
		for i := range asked {
			kinds = append(kinds, asked[i].Kind+" "+asked[i].ArtifactType+" "+asked[i].MIME+" "+asked[i].Name+" "+asked[i].BytesRef.Kind)
		}
		want := []string{
			"artifact data application/json  inline", "artifact data application/json named.json inline", "file  application/json  inline",
			"artifact data application/json  content_addressed",
		}
		if diff := cmp.Diff(want, kinds); diff != "" {
			w.Error(diff)
		}
		if written, err := asked[0].MarshalJSON(); err != nil || !strings.Contains(string(written), `"artifact_type":"data"`) {
			w.Errorf("the agent reads %s, %v", written, err)
		}

		artifacts := value.Elements(task["artifacts"])
		if len(artifacts) != 1 {
			w.Fatalf("%d artifacts: %.2000v", len(artifacts), artifacts)
		}
		for i, want := range []string{`{"list":[1.0],"n":9007199254740993}`, `"text"`, "", large} {
			part := value.Assoc(value.Elements(value.Assoc(artifacts[0])["parts"])[i])
			data, is := part["data"]
			if is != (want != "") || is && value.EncodeText(data) != want {
				w.Errorf("part %d came back as %.200v", i, part)
			}
		}
	})
}

// TestFollowUpsNameTheAnswerBefore: a message in a context says which answer it follows, in a new task as well, and never that
// of another owner's context of the same name.
func TestFollowUpsNameTheAnswerBefore(t *testing.T) {
	t.Parallel()
	wholeOnBoth(t, func(w *whole) {
		const message = `{"messageId":"%s","contextId":"talk","role":"ROLE_USER","parts":[{"text":"hello"}]}`
		w.send(fmt.Sprintf(message, "m1"))
		if first := w.wasAsked(); first.InReplyTo != "" {
			w.Errorf("the first message follows %q", first.InReplyTo)
		}

		before := ""
		for i := range 2 {
			task := w.send(fmt.Sprintf(message, fmt.Sprint("m", i+2)))
			next := w.wasAsked()
			if len(next.History) == 0 || next.InReplyTo == "" || next.InReplyTo == before || next.InReplyTo != next.History[len(next.History)-1].ID {
				w.Errorf("message %d follows %q, before %+v", i+2, next.InReplyTo, next.History)
			}
			if repeated := w.send(fmt.Sprintf(message, fmt.Sprint("m", i+2))); repeated["id"] != task["id"] {
				w.Errorf("a repeat is task %v, not %v", repeated["id"], task["id"])
			}
			before = next.InReplyTo
		}

		w.token = w.Token("ben")
		w.send(fmt.Sprintf(message, "m1"))
		if other := w.wasAsked(); other.InReplyTo != "" || len(other.History) > 0 {
			w.Errorf("somebody else follows %q, %+v", other.InReplyTo, other.History)
		}
	})
}
