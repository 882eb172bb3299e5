package bridge_test

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

	"inbox/adapters/bridge/contract"
	"inbox/operator"
)

func TestSessionsOverTheWire(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")
	made := b.call(relay, http.MethodPost, "/v1/sessions", map[string]any{"agent": "echo", "title": "plans"}, http.StatusCreated)
	id := made["session_id"].(string)
	run := b.call(relay, http.MethodPost, "/v1/sessions/"+id+"/messages", map[string]any{"message": "first", "wait": true}, http.StatusOK)
	if run["session_id"] != id {
		t.Errorf("the run is %v", run)
	}
	path := "/v1/sessions/" + id
	for method, body := range map[string]any{http.MethodGet: nil, http.MethodPatch: map[string]any{"title": "x"}, http.MethodDelete: nil} {
		b.call(other, method, path, body, http.StatusNotFound)
		b.call("", method, path, body, http.StatusUnauthorized)
	}
	b.call(other, http.MethodGet, path+"/messages", nil, http.StatusNotFound)
	b.call(other, http.MethodPost, path+"/messages", map[string]any{"message": "x"}, http.StatusNotFound)
	b.call(other, http.MethodGet, path+"/export", nil, http.StatusNotFound)
	b.call(relay, http.MethodPatch, path, map[string]any{"title": "other plans"}, http.StatusOK)
	if got := b.call(relay, http.MethodGet, path, nil, http.StatusOK); got["title"] != "other plans" || got["status"] != "completed" {
		t.Errorf("the session is %v", got)
	}
	messages, _ := b.call(relay, http.MethodGet, path+"/messages", nil, http.StatusOK)["messages"].([]any)
	if len(messages) != 2 || messages[0].(map[string]any)["content"] != "first" {
		t.Errorf("messages %v", messages)
	}
	list, _ := b.call(relay, http.MethodGet, "/v1/sessions", nil, http.StatusOK)["sessions"].([]any)
	if len(list) != 1 {
		t.Errorf("sessions %v", list)
	}
	if list, _ := b.call(other, http.MethodGet, "/v1/sessions", nil, http.StatusOK)["sessions"].([]any); len(list) != 0 {
		t.Errorf("another owner lists %v", list)
	}
	if refused, _ := b.call(relay, http.MethodGet, "/v1/sessions?cursor=x", nil, http.StatusBadRequest)["error"].(map[string]any); refused["field"] != "cursor" {
		t.Errorf("a cursor that is none: %v", refused)
	}
	b.call(relay, http.MethodDelete, path, nil, http.StatusOK)
	b.call(relay, http.MethodGet, path, nil, http.StatusNotFound)
	b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x", "session_id": id}, http.StatusNotFound)
}

func TestRunControlOverTheWire(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")
	made := b.call(relay, http.MethodPost, "/v1/sessions", map[string]any{"agent": "stuck"}, http.StatusCreated)
	path := "/v1/sessions/" + made["session_id"].(string) + "/messages"
	first := b.call(relay, http.MethodPost, path, map[string]any{"message": "one"}, http.StatusAccepted)
	second := b.call(relay, http.MethodPost, path, map[string]any{"message": "two"}, http.StatusAccepted)
	if first["position"] != 1.0 || second["position"] != 2.0 || second["status"] != "queued" || second["queued_message_id"] == nil {
		t.Errorf("queued %v, %v", first, second)
	}
	run := "/v1/runs/" + first["run_id"].(string)
	b.call(other, http.MethodPost, run+"/cancel", nil, http.StatusNotFound)
	b.call(relay, http.MethodPost, run+"/cancel", map[string]any{"session_id": "another"}, http.StatusNotFound)
	if got := b.call(relay, http.MethodPost, run+"/cancel", nil, http.StatusOK); got["status"] != "cancelled" || !flag(got["cancelled"]) {
		t.Errorf("the cancelled run is %v", got)
	}
	if got := b.call(relay, http.MethodGet, run, nil, http.StatusOK); got["status"] != "cancelled" {
		t.Errorf("the run is %v", got)
	}
	b.call(relay, http.MethodPost, "/v1/runs/"+second["run_id"].(string)+"/stop", nil, http.StatusOK)
	done := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x", "wait": true}, http.StatusOK)
	if got := b.call(relay, http.MethodPost, "/v1/runs/"+done["run_id"].(string)+"/cancel", nil, http.StatusOK); got["status"] != "completed" || flag(got["cancelled"]) {
		t.Errorf("a run that has ended: %v", got)
	}
}

// TestChatsAreSessions finds the conversation of a chat again, by the token with which it was held, and by no other.
func TestChatsAreSessions(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	operator := b.Operator()
	var tokens []string
	for _, name := range []string{"ann", "ben"} {
		token, _, err := operator.Tokens.Create(t.Context(), name, "")
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	for i := range 2 {
		answer := b.call(tokens[0], http.MethodPost, "/v1/chat", map[string]any{"agent": "echo", "message": fmt.Sprint("line ", i), "session_id": "my-session"}, http.StatusOK)
		if answer["session_id"] != "my-session" {
			t.Fatalf("the chat is %v", answer)
		}
	}
	list, _ := b.call(tokens[0], http.MethodGet, "/v1/sessions", nil, http.StatusOK)["sessions"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["title"] != "line 0" {
		t.Errorf("sessions %v", list)
	}
	messages, _ := b.call(tokens[0], http.MethodGet, "/v1/sessions/my-session/messages", nil, http.StatusOK)["messages"].([]any)
	if len(messages) != 4 {
		t.Errorf("messages %v", messages)
	}
	b.call(tokens[1], http.MethodGet, "/v1/sessions/my-session", nil, http.StatusNotFound)
	run := b.call(tokens[0], http.MethodPost, "/v1/sessions/my-session/messages", map[string]any{"message": "by the session", "wait": true}, http.StatusOK)
	if run["reply"] != "by the session" {
		t.Errorf("the run is %v", run)
	}
	b.call(tokens[1], http.MethodGet, "/v1/runs/"+run["run_id"].(string), nil, http.StatusNotFound)
	b.call(tokens[0], http.MethodGet, "/v1/bridge/pending", nil, http.StatusUnauthorized)
}

// TestImportOverTheWire brings in what seed messages say and finds it again, in the history of the agent too.
func TestImportOverTheWire(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")
	raw := `{"agent":"teller","title":"old talk","connector_id":"tg","external_conversation_id":"42","messages":[
		{"type":"user_message","content":"List <all> tables","timestamp":"2024-01-15T10:30:00Z","metadata":{"n":1.0,"big":12345678901234567890}},
		{"type":"action","tool":"list_tables","args":{"schema":"public"},"agent_key":"analyzer","timestamp":"2024-01-15T10:30:01Z"},
		{"type":"observation","content":{"count":3},"agent_key":"analyzer"},
		{"type":"final","content":{"operation":"display_message","payload":{"message":"x"},"human_readable_summary":"Found 3"},"agent_key":"analyzer"},
		{"type":"synthesis","content":"all","phase_id":1,"from_manager":"m","is_global":true,"odd":[null]}]}`
	done := b.call(relay, http.MethodPost, "/v1/import", []byte(raw), http.StatusOK)
	session := done["sessions"].([]any)[0].(map[string]any)
	id := session["session_id"].(string)
	exported := b.export(relay, id)
	var want, got struct{ Messages []json.RawMessage }
	for text, into := range map[string]any{raw: &want, exported: &got} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	for i := range want.Messages {
		var flat bytes.Buffer
		if err := json.Compact(&flat, want.Messages[i]); err != nil || flat.String() != string(got.Messages[i]) {
			t.Errorf("message %d came back as %s, want %s", i, got.Messages[i], flat.String())
		}
	}
	b.call(relay, http.MethodPost, "/v1/import", []byte(exported), http.StatusOK)
	if again := b.export(relay, id); again != exported {
		t.Errorf("exported again:\n%s\nwant\n%s", again, exported)
	}
	b.call(relay, http.MethodPost, "/v1/import", []byte(strings.Replace(exported, "Found 3", "Found 4", 1)), http.StatusConflict)
	b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"teller","messages":[{"type":"unheard","content":"x"}]}`), http.StatusBadRequest)
	b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"nobody","messages":[]}`), http.StatusNotFound)
	b.call(other, http.MethodGet, "/v1/sessions/"+id+"/export", nil, http.StatusNotFound)
	key := contract.NewSessionKey("old-bot", "7", "teller").Imported()
	b.call(other, http.MethodPost, "/v1/import", map[string]any{"session_map": map[string]string{key: id}}, http.StatusNotFound)
	b.call(relay, http.MethodPost, "/v1/import", map[string]any{"session_map": map[string]string{key: id}}, http.StatusOK)
	for connector, conversation := range map[string]string{"old_bot": "7", "tg": "42"} {
		run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{
			"agent": "teller", "message": "go on", "connector_id": connector, "external_conversation_id": conversation, "wait": true,
		}, http.StatusOK)
		reply := fmt.Sprint(run["reply"])
		if run["session_id"] != id || !strings.HasPrefix(reply, "history: user=List <all> tables|assistant=[called list_tables") || !strings.Contains(reply, "Found 3") {
			t.Errorf("%s goes on with %v", connector, run)
		}
	}
}

// export returns the bytes of an exported session.
func (b *bridged) export(token, session string) string {
	b.Helper()
	status, _, body := b.Read(http.MethodGet, "/v1/sessions/"+session+"/export", token, "")
	if status != http.StatusOK {
		b.Fatalf("export answered %d: %s", status, body)
	}
	return body
}

// jsonValue draws JSON as others write it: numbers that no float holds, escapes, members that no one knows.
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
	t.Parallel()
	bridgedOnBoth(t, func(b *bridged) {
		conversations := b.Operator().Conversations
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
		rapid.Check(b, func(t *rapid.T) {
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
	t.Parallel()
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
	t.Parallel()
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
