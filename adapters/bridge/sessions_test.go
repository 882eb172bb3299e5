package bridge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
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

// TestSessionsHaveConversationsOfTheirOwn: two owners who choose one id have two conversations, and a session that is made after another one of
// the same id was deleted begins anew.
func TestSessionsHaveConversationsOfTheirOwn(t *testing.T) {
	t.Parallel()
	bridgedOnBoth(t, func(b *bridged) {
		relay, other := b.token("relay"), b.token("other")
		seen := map[string]bool{}
		for _, token := range []string{relay, other, relay} {
			b.call(token, http.MethodPost, "/v1/sessions", map[string]any{"agent": "echo", "session_id": "plans"}, http.StatusCreated)
			path := "/v1/sessions/plans"
			for range 2 {
				b.call(token, http.MethodPost, path+"/messages", map[string]any{"message": "x", "wait": true}, http.StatusOK)
			}
			turns, err := b.Store().Turns(b.Context(), exchange.TurnFilter{ByArrival: true, Limit: 2})
			if err != nil || len(turns) != 2 || turns[0].ThreadID != turns[1].ThreadID || !exchange.IsConversationID(turns[0].ThreadID) || seen[turns[0].ThreadID] {
				b.Errorf("the session is in %+v, %v", turns, err)
			}
			seen[turns[0].ThreadID] = true
			b.call(token, http.MethodDelete, path, nil, http.StatusOK)
		}
	})
}

//contract:shows runtime-39 runtime-106
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
//
//contract:shows channels-9 channels-14 channels-33
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

// TestImportOverTheWire brings in what messages of the older framework say and finds it again, in the history of the agent too.
//
//contract:shows envelope-7 channels-46 format-3 format-4 format-5 format-7 format-10 format-11 format-13 format-14 message-30
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
	b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"teller","strict":true,"messages":[{"type":"unheard","content":"x"}]}`), http.StatusBadRequest)
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

// frameworkMessage draws a message of the older framework: calls of tools and their outcomes, parts, metadata, unknown members.
func frameworkMessage(t *rapid.T) string {
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
			messages := rapid.SliceOfN(rapid.Custom(frameworkMessage), 1, 8).Draw(t, "messages")
			body := `{"agent":"echo","messages":[` + strings.Join(messages, ",\n") + `]}`
			if _, err := conversations.Import(b.Context(), first, "", "", false, []byte(body)); err != nil {
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
			if _, err := conversations.Import(b.Context(), second, "", "", false, exported); err != nil {
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
//
//contract:shows message-28 message-29
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

// TestEnvelopesOverTheWire brings a conversation in as rows, envelopes and messages of the framework, line by line, goes on with
// it, and reads all of it as envelopes: calls of tools and their results among them. What was exported as envelopes is taken
// again and comes back the same.
//
//contract:shows envelope-1 envelope-2 envelope-14 envelope-18 envelope-22 envelope-23
func TestEnvelopesOverTheWire(t *testing.T) {
	t.Parallel()
	bridgedOnBoth(t, func(b *bridged) {
		relay, other := b.token("relay"), b.token("other")
		lines := strings.Join([]string{
			`{"role":"user","content":"List all tables"}`,
			`{"schema":"agents-api.message","version":1,"type":"tool_call","role":"assistant","content":"","payload":{"tool_name":"list","parameters":{"n":1.0},"turn":1},"metadata":{"tool_call_id":"c1"}}`,
			``,
			`{"role":"user","content":"[3]","metadata":{"type":"tool_result","tool_name":"list","success":true,"tool_call_id":"c1"}}`,
			`{"type":"action","tool":"count","args":{},"agent_key":"a"}`,
			`{"type":"observation","content":{"count":3},"agent_key":"a"}`,
			`{"type":"assistant_message","content":"Three","timestamp":"2024-01-15T10:30:00Z"}`,
			`{"role":"assistant","content":[{"type":"text","text":"of them"}]}`,
		}, "\n")
		b.call(relay, http.MethodPost, "/v1/import?agent=teller&session_id=lined&title=Tables", []byte(lines), http.StatusOK)
		run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "teller", "session_id": "lined", "message": "go on", "wait": true}, http.StatusOK)
		for _, part := range []string{"user=List all tables", "[called list {\"n\":1.0}]", "[result: [3]]", "of them"} {
			if !strings.Contains(fmt.Sprint(run["reply"]), part) {
				b.Errorf("the agent sees %v, without %s", run["reply"], part)
			}
		}

		read := b.call(relay, http.MethodGet, "/v1/sessions/lined/messages?format=envelope", nil, http.StatusOK)
		var kinds []string
		for _, one := range read["messages"].([]any) {
			message := one.(map[string]any)
			if message["schema"] != "agents-api.message" || message["version"] != 1.0 || message["payload"] == nil || message["metadata"] == nil {
				b.Errorf("%v is no envelope", message)
			}
			kinds = append(kinds, fmt.Sprint(message["type"], "/", message["role"]))
		}
		want := []string{
			"text/user", "tool_call/assistant", "tool_result/user", "tool_call/assistant", "tool_result/user", "text/assistant",
			"multimodal_part/assistant", "text/user", "text/assistant",
		}
		if !slices.Equal(kinds, want) {
			b.Errorf("%v", kinds)
		}
		if named := read["messages"].([]any)[4].(map[string]any)["payload"].(map[string]any)["tool_name"]; named != "count" {
			b.Errorf("the observation is of %v", named)
		}
		if shown := b.call(relay, http.MethodGet, "/v1/sessions/lined/messages", nil, http.StatusOK); shown["total"] != 5.0 {
			b.Errorf("shown %v", shown)
		}
		merged := b.call(relay, http.MethodGet, "/v1/sessions/lined/messages?format=envelope&coalesce=true", nil, http.StatusOK)["messages"].([]any)
		for i := range merged[1:] {
			if merged[i].(map[string]any)["role"] == merged[i+1].(map[string]any)["role"] {
				b.Errorf("messages %d and %d are of one role", i, i+1)
			}
		}
		rows := b.call(relay, http.MethodGet, "/v1/sessions/lined/messages?format=provider", nil, http.StatusOK)["messages"].([]any)
		for at, want := range []string{
			`{"role":"user","content":"List all tables"}`,
			`{"role":"assistant","content":"","metadata":{"parameters":{"n":1.0},"tool_call_id":"c1","tool_name":"list","turn":1,"type":"tool_call"}}`,
			`{"role":"user","content":"[3]","metadata":{"success":true,"tool_call_id":"c1","tool_name":"list","type":"tool_result"}}`,
		} {
			var row map[string]any
			if err := json.Unmarshal([]byte(want), &row); err != nil || !reflect.DeepEqual(rows[at], any(row)) {
				b.Errorf("row %d for a provider is %v, want %s", at, rows[at], want)
			}
		}
		joined := b.call(relay, http.MethodGet, "/v1/sessions/lined/messages?format=provider&coalesce=true", nil, http.StatusOK)["messages"].([]any)
		if len(joined) != len(merged) {
			b.Errorf("%d joined rows of %d joined envelopes", len(joined), len(merged))
		}
		b.call(relay, http.MethodGet, "/v1/sessions/lined/messages?format=odd", nil, http.StatusBadRequest)
		b.call(relay, http.MethodGet, "/v1/sessions/lined/export?format=odd", nil, http.StatusBadRequest)

		for _, format := range []string{"envelope", "agent-framework"} {
			path := "/v1/sessions/lined/export?format=" + format
			_, _, exported := b.Read(http.MethodGet, path, relay, "")
			b.call(other, http.MethodPost, "/v1/import", []byte(strings.Replace(exported, `"lined"`, `"`+format+`"`, 1)), http.StatusOK)
			b.call(other, http.MethodPost, "/v1/import", []byte(strings.Replace(exported, `"lined"`, `"`+format+`"`, 1)), http.StatusOK)
			_, _, again := b.Read(http.MethodGet, strings.Replace(path, "lined", format, 1), other, "")
			if strings.Replace(again, `"session_id":"`+format+`"`, `"session_id":"lined"`, 1) != exported {
				b.Errorf("exported again:\n%s\nwant\n%s", again, exported)
			}
		}

		bad := lines + "\n" + `{"type":"final","content":{"operation":7}}`
		refused, _ := b.call(relay, http.MethodPost, "/v1/import?agent=teller&strict=true", []byte(bad), http.StatusBadRequest)["error"].(map[string]any)
		if refused["field"] != "content.operation" || refused["message"] != "line 9: content.operation must be a non-empty string" {
			b.Errorf("refused with %v", refused)
		}
	})
}

// TestMembersOfEnvelopesOverTheWire: what an envelope says of itself is kept whole, whichever of its forms it came in, and what
// is none is refused with its line.
//
//contract:shows envelope-1 envelope-2 envelope-3 envelope-4 envelope-5 envelope-6 envelope-8 envelope-14 envelope-15 envelope-16
//contract:shows envelope-17 envelope-22
func TestMembersOfEnvelopesOverTheWire(t *testing.T) {
	t.Parallel()
	bridgedOnBoth(t, func(b *bridged) {
		relay := b.token("relay")
		given := `[
			{"schema":"agents-api.message","version":1,"type":"text","role":"user","content":[{"type":"text","text":"hi"},{"type":"odd","x":1.0}],"payload":{},
				"metadata":{"page":"/a"},"id":"m-1","created_at":"2024-01-15T10:30:00Z","updated_at":"2024-01-16T10:30:00Z","left_out":1},
			{"version":"1","type":"tool_call","data":{"tool_name":"list","parameters":{"n":1.0},"turn":2,"own":[null]},"metadata":{"tool_call_id":"c1"}},
			{"role":"tool","content":"[3]","metadata":{"type":"tool_result","tool_name":"list","success":true,"tool_call_id":"c1","vendor":{"k":"v"}}},
			{"role":"assistant","content":"","metadata":{"type":"tool_call","tool_name":"count","parameters":{"of":"rows"},"turn":3,"tool_call_id":"c2","vendor":1}},
			{"role":"tool","content":"","metadata":{"type":"tool_result","tool_name":"count","success":false,"error":"no","tool_call_id":"c2"}},
			{"role":"assistant","content":"Three"}]`
		want := `[
			{"schema":"agents-api.message","version":1,"type":"text","role":"user","content":[{"type":"text","text":"hi"},{"type":"odd","x":1.0}],"payload":{},
				"metadata":{"page":"/a"},"id":"m-1","created_at":"2024-01-15T10:30:00Z","updated_at":"2024-01-16T10:30:00Z"},
			{"schema":"agents-api.message","version":1,"type":"tool_call","role":"assistant","content":"","payload":{"tool_name":"list","parameters":{"n":1.0},"turn":2,"own":[null]},"metadata":{"tool_call_id":"c1"}},
			{"schema":"agents-api.message","version":1,"type":"tool_result","role":"tool","content":"[3]","payload":{"tool_name":"list","success":true},
				"metadata":{"type":"tool_result","tool_name":"list","success":true,"tool_call_id":"c1","vendor":{"k":"v"}}},
			{"schema":"agents-api.message","version":1,"type":"tool_call","role":"assistant","content":"","payload":{"tool_name":"count","parameters":{"of":"rows"},"turn":3},
				"metadata":{"type":"tool_call","tool_name":"count","parameters":{"of":"rows"},"turn":3,"tool_call_id":"c2","vendor":1}},
			{"schema":"agents-api.message","version":1,"type":"tool_result","role":"tool","content":"","payload":{"tool_name":"count","success":false,"error":"no"},
				"metadata":{"type":"tool_result","tool_name":"count","success":false,"error":"no","tool_call_id":"c2"}},
			{"schema":"agents-api.message","version":1,"type":"text","role":"assistant","content":"Three","payload":{},"metadata":{}}]`
		b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"teller","session_id":"whole","messages":`+given+`}`), http.StatusOK)
		for _, path := range []string{"/v1/sessions/whole/messages?format=envelope", "/v1/sessions/whole/export?format=envelope"} {
			var expected []any
			if err := json.Unmarshal([]byte(want), &expected); err != nil {
				b.Fatal(err)
			}
			if got := b.call(relay, http.MethodGet, path, nil, http.StatusOK)["messages"]; !reflect.DeepEqual(got, any(expected)) {
				b.Errorf("%s:\n%v\nwant\n%v", path, got, expected)
			}
		}

		for line, reason := range map[string]string{
			`{"schema":"agents-api.message","version":1,"type":"unheard","role":"user","content":"x","payload":{}}`:                                "unsupported type",
			`{"schema":"agents-api.message","version":2,"type":"text","role":"user","content":"x","payload":{}}`:                                   "unsupported version",
			`{"schema":"agents-api.message","version":1,"type":"text","role":"user","content":7,"payload":{}}`:                                     "content must be a string or array",
			`{"schema":"agents-api.message","version":1,"type":"text","role":"user","content":"x","payload":{"n":NaN}}`:                            "",
			`{"schema":"agents-api.message","version":1,"type":"text","role":"user","content":"x","payload":{},"metadata":{"n":"` + "\xff" + `"}}`: "must be UTF-8",
		} {
			refused, _ := b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"teller","messages":[`+line+`]}`), http.StatusBadRequest)["error"].(map[string]any)
			if !strings.Contains(fmt.Sprint(refused["message"]), reason) {
				b.Errorf("%s: refused with %v, want %s", line, refused, reason)
			}
		}
	})
}

// TestRefusedImportsOverTheWire: a message that breaks a rule of the framework is refused with its place, and nothing of its
// conversation comes in.
//
//contract:shows format-23 format-24 format-25
func TestRefusedImportsOverTheWire(t *testing.T) {
	t.Parallel()
	bridgedOnBoth(t, func(b *bridged) {
		relay := b.token("relay")
		for message, want := range map[string]string{
			`{"type":"user_message","content":7}`:                                  "content must be a string, a list or an object",
			`{"type":"final","content":"x","agent_key":"a"}`:                       "content.operation must be a non-empty string",
			`{"type":"error","content":{"tool":"t"},"agent_key":"a"}`:              "content.error_message must be a non-empty string",
			`{"type":"action","args":{},"agent_key":"a"}`:                          "tool must be a non-empty string",
			`{"type":"action","tool":"t","args":"x","agent_key":"a"}`:              "args must be an object",
			`{"type":"strategic_plan","content":{"plan":"x"}}`:                     "content.plan must be an object",
			`{"type":"task","content":"x"}`:                                        "agent_key must be a non-empty string",
			`{"type":"action","tool":"t","args":{}}`:                               "agent_key must be a non-empty string",
			`{"type":"observation","content":{"rows":1},"agent_key":" "}`:          "agent_key must be a non-empty string",
			`{"type":"user_message","content":"x","timestamp":"yesterday"}`:        "timestamp must be an ISO 8601 time",
			`{"type":"user_message","content":"x","timestamp":1705314600}`:         "timestamp must be an ISO 8601 time",
			`{"type":"user_message","content":"x","timestamp":"15.01.2024 10:30"}`: "timestamp must be an ISO 8601 time",
		} {
			body := `{"agent":"teller","strict":true,"session_id":"refused","messages":[{"type":"user_message","content":"first"},` + message + `]}`
			refused, _ := b.call(relay, http.MethodPost, "/v1/import", []byte(body), http.StatusBadRequest)["error"].(map[string]any)
			field, _, _ := strings.Cut(want, " ")
			if said := fmt.Sprint(refused["message"]); !strings.HasSuffix(said, want) || !strings.HasSuffix(fmt.Sprint(refused["field"]), field) {
				b.Errorf("%s: refused with %v, want %s", message, refused, want)
			}
			b.call(relay, http.MethodGet, "/v1/sessions/refused/messages", nil, http.StatusNotFound)
		}
	})
}

// TestNamedIsNotAddressed: who is named in the text of an answer alone is not sent it, and the agent is told with the next
// message of the conversation.
func TestNamedIsNotAddressed(t *testing.T) {
	t.Parallel()
	bridgedOnBoth(t, func(b *bridged) {
		relay := b.token("relay")
		say := func(text string) map[string]any {
			b.Helper()
			return b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "namer", "session_id": "talk", "message": text, "wait": true}, http.StatusOK)
		}
		b.call(relay, http.MethodPost, "/v1/sessions", map[string]any{"agent": "namer", "session_id": "talk"}, http.StatusCreated)
		first := say("ask @bob@elsewhere.example and `@code@elsewhere.example`, a@b.example, @bob@ELSEWHERE.example")
		if told := <-b.named; len(told) != 0 {
			b.Errorf("the first turn was told %q", told)
		}
		say("nobody")
		if told := <-b.named; !slices.Equal(told, []string{"@bob@elsewhere.example"}) {
			b.Errorf("the second turn was told %q", told)
		}
		say("nobody again")
		if told := <-b.named; len(told) != 0 {
			b.Errorf("the third turn was told %q", told)
		}

		turn, err := b.Operator().Messages.Show(b.Context(), fmt.Sprint(first["run_id"]))
		if err != nil {
			b.Fatal(err)
		}
		noted := false
		for _, event := range turn.Events {
			noted = noted || event.Kind == exchange.EventNotAddressed && strings.Contains(string(event.Body), `"@bob@elsewhere.example"`)
		}
		if !noted {
			b.Errorf("the timeline is %v", turn.Events)
		}
	})
}

// TestConnectorsHandInProfilesAndOriginals: the agent learns locale, time zone and picture of the sender, and the original is
// what the product wrote.
//
//contract:shows channels-44 message-15
func TestConnectorsHandInProfilesAndOriginals(t *testing.T) {
	t.Parallel()
	bridgedOnBoth(t, func(b *bridged) {
		body := `{"text":"hi","sender_name":"Ann","client_context":{"host_context":{"page":"/a"}},"external_conversation_id":"c","external_message_id":"m-1","sender_id":"u","raw":{"ts":1.50},
			"profile":{"locale":"de-AT","timezone":"Europe/Vienna","avatar":{"url":"https://files.example/a.png"}},"wait":"20s"}`
		header := http.Header{"X-Inbox-Signature": {webhooksignature.Sign(inboxtest.ConnectorSecret, []byte(body))}}
		run := b.request(http.MethodPost, "/v1/connectors/slack/messages", header, []byte(body), http.StatusOK)
		turn, err := b.Operator().Messages.Turn(b.Context(), fmt.Sprint(run["run_id"]))
		if err != nil {
			b.Fatal(err)
		}
		profile := turn.Message.Sender.Profile
		if profile == nil || profile.Locale != "de-AT" || profile.Timezone != "Europe/Vienna" || profile.Avatar == nil || profile.Avatar.URL != "https://files.example/a.png" {
			b.Fatalf("the profile is %+v", profile)
		}
		if profile.DisplayName != "Ann" || profile.Provider != "slack" || profile.ProviderSubject != "u" || !strings.Contains(string(profile.Extensions["dev.inbox.bridge"]), `"page":"/a"`) {
			b.Errorf("the profile is %+v", profile)
		}
		if want := "sha256:" + normalized.Digest([]byte(`{"ts":1.50}`)); turn.Message.Raw.Ref != want {
			b.Errorf("the original is %+v, want %s", turn.Message.Raw, want)
		}
	})
}
