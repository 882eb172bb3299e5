package inbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/operator"
)

// jsonValue draws JSON as others write it: numbers that no float holds, escapes, members that nobody knows.
func jsonValue(t *rapid.T, depth int) string {
	scalars := rapid.SampledFrom([]string{
		`null`, `true`, `1`, `1.0`, `-0`, `1e400`, `12345678901234567890123`, `""`, `"\u0000"`, `"\ud800"`, `"\/"`, `"<&>"`, `"é\u00e9"`, `"\u2028"`, "\"\u2028\"", `{}`, `[]`,
	})
	if depth == 0 || rapid.Bool().Draw(t, "scalar") {
		return scalars.Draw(t, "value")
	}
	var pieces []string
	for i := range rapid.IntRange(0, 3).Draw(t, "size") {
		pieces = append(pieces, fmt.Sprintf(`"k%d" : %s`, i, jsonValue(t, depth-1)))
	}
	if rapid.Bool().Draw(t, "list") {
		for i := range pieces {
			_, pieces[i], _ = strings.Cut(pieces[i], " : ")
		}
		return "[" + strings.Join(pieces, " , ") + "]"
	}
	return "{" + strings.Join(pieces, " , ") + "}"
}

// seedMessage draws a message of the older framework: calls of tools and their outcomes, parts, metadata, unknown members.
func seedMessage(t *rapid.T) string {
	kinds := map[string]string{
		"user_message": `"content":"list <all> tables"`, "assistant_message": `"content":[{"type":"text","text":"x"},{"type":"image","url":"https://a.example/i.png"}]`,
		"action": `"tool":"list","args":` + "{\"a\" : " + jsonValue(t, 2) + "}" + `,"agent_key":"a"`, "observation": `"content":{"rows":` + jsonValue(t, 2) + `},"agent_key":"a"`,
		"error": `"content":{"error_message":"no","error_type":"E"},"agent_key":"a"`, "synthesis": `"content":"all","phase_id":1,"is_global":true`,
		"strategic_plan": `"content":{"plan":{"phases":[]}}`, "injected_context": `"content":"c"`,
	}
	kind := rapid.SampledFrom(slices.Sorted(maps.Keys(kinds))).Draw(t, "type")
	message := `{"type":"` + kind + `", ` + kinds[kind]
	if rapid.Bool().Draw(t, "dated") {
		message += `, "timestamp" : "2024-01-15T10:30:00Z"`
	}
	if rapid.Bool().Draw(t, "metadata") {
		message += `, "metadata":{"m": ` + jsonValue(t, 3) + `}`
	}
	if rapid.Bool().Draw(t, "unknown") {
		message += `,"unheard_of":` + jsonValue(t, 3)
	}
	return message + "}"
}

// TestConversationsKeepEveryByte imports, exports, imports that and exports again: the messages are those that came, byte for
// byte but for the blanks between, and the second export is the first.
func TestConversationsKeepEveryByte(t *testing.T) {
	bridgedOnBoth(t, func(b *bridged) {
		conversations := b.server.Operator().Conversations
		export := func(t *rapid.T, client string) []byte {
			documents, err := conversations.Export(b.Context(), operator.ConversationFilter{Client: client})
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := operator.EncodeConversations(documents)
			if err != nil {
				t.Fatal(err)
			}
			return encoded
		}
		round := 0
		rapid.Check(b.T, func(t *rapid.T) {
			round++
			first, second := fmt.Sprint("first-", round), fmt.Sprint("second-", round)
			messages := rapid.SliceOfN(rapid.Custom(seedMessage), 1, 8).Draw(t, "messages")
			body := `{"agent":"echo","messages":[` + strings.Join(messages, ",\n") + `]}`
			if _, err := conversations.Import(b.Context(), first, "", "", []byte(body)); err != nil {
				t.Fatal(err, body)
			}
			exported := export(t, first)
			var got struct {
				Conversations []struct{ Messages []json.RawMessage }
			}
			if err := json.Unmarshal(exported, &got); err != nil || len(got.Conversations) != 1 || len(got.Conversations[0].Messages) != len(messages) {
				t.Fatalf("exported %s, %v", exported, err)
			}
			for i, message := range messages {
				var flat bytes.Buffer
				if err := json.Compact(&flat, []byte(message)); err != nil || flat.String() != string(got.Conversations[0].Messages[i]) {
					t.Errorf("message %d came back as %s, want %s", i, got.Conversations[0].Messages[i], flat.String())
				}
			}
			if _, err := conversations.Import(b.Context(), second, "", "", exported); err != nil {
				t.Fatal(err)
			}
			if again := export(t, second); !bytes.Equal(again, exported) {
				t.Errorf("exported again:\n%s\nwant\n%s", again, exported)
			}
		})
	})
}

// TestLargeAndDeepConversationsMove brings in a message as long and one as deep as a request may be, by each way, and shows them.
func TestLargeAndDeepConversationsMove(t *testing.T) {
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")
	deep := `{"type":"user_message","content":"deep","metadata":` + strings.Repeat(`{"a":`, 60) + `1` + strings.Repeat(`}`, 60) + `}`
	long := strings.Repeat(`"\n`, 300<<10)
	run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x" + long[:200<<10] + "x", "wait": true}, http.StatusOK)
	b.call(relay, http.MethodGet, "/v1/sessions/"+run["session_id"].(string)+"/messages", nil, http.StatusOK)
	encoded, err := json.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"agent":"echo","session_id":"old","messages":[` + deep + `,{"type":"assistant_message","content":` + string(encoded) + `}]}`
	b.call(relay, http.MethodPost, "/v1/import", []byte(body), http.StatusOK)
	exported := b.export(relay, "old")
	b.call(other, http.MethodPost, "/v1/import", []byte(`{"conversations":[`+exported+`]}`), http.StatusOK)
	if again := b.export(other, "old"); again != exported {
		t.Errorf("exported again %d bytes, want %d", len(again), len(exported))
	}
	if messages, _ := b.call(other, http.MethodGet, "/v1/sessions/old/messages", nil, http.StatusOK)["messages"].([]any); len(messages) != 2 {
		t.Errorf("%d messages", len(messages))
	}
	deeper := strings.Replace(deep, `{"a":1}`, `{"a":`+strings.Repeat(`[`, 10)+strings.Repeat(`]`, 10)+`}`, 1)
	b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"echo","messages":[`+deeper+`]}`), http.StatusBadRequest)
}

// TestLongImportsKeepTheirBeginning continues a long conversation: the agent sees its head and its newest part.
func TestLongImportsKeepTheirBeginning(t *testing.T) {
	b := newBridged(t, "")
	relay := b.token("relay")
	var messages []string
	for i := range 300 {
		messages = append(messages, fmt.Sprintf(`{"type":%q,"content":"line %d"}`, []string{"user_message", "assistant_message"}[i%2], i))
	}
	b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"teller","session_id":"long","messages":[`+strings.Join(messages, ",")+`]}`), http.StatusOK)
	run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "teller", "session_id": "long", "message": "go on", "wait": true}, http.StatusOK)
	reply := fmt.Sprint(run["reply"])
	if !strings.HasPrefix(reply, "history: user=line 0|assistant=line 1|user=line 2") || !strings.HasSuffix(reply, "|assistant=line 299") {
		t.Errorf("the agent sees %s", reply)
	}
}
