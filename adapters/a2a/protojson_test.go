package a2a

import (
	"net/http"
	"testing"

	"inbox/normalized"
)

// TestProtoJSONOfRequests: what ProtoJSON takes beside the plain form is taken by JSON-RPC and HTTP+JSON (A2A 1.0, section
// 5.5; Protocol Buffers language guide, ProtoJSON): numbers in quotes, enums by number, null as data.
func TestProtoJSONOfRequests(t *testing.T) {
	b := setup(t)
	send := `{"message":{"messageId":"m1","role":1,"parts":[{"data":null}]},"configuration":{"historyLength":"0"}}`
	if r := b.rpc(b.ada, "SendMessage", send); r.text(t, "result.task.status.state") != "TASK_STATE_COMPLETED" || r.at(t, "result.task.history") != nil {
		t.Errorf("sent: %s", r.body)
	}
	part := b.engine.last().Message.Parts[0]
	if part.Kind != normalized.PartFile || part.MIME != mimeJSON || part.Size != 4 {
		t.Errorf("null became %+v", part)
	}
	if r := b.do("POST", "/a2a/echo/rest/message:send", b.ada, send); r.status != http.StatusOK || r.at(t, "task.history") != nil {
		t.Errorf("again by HTTP+JSON: %d %s", r.status, r.body)
	}
	if r := b.rpc(b.ada, "ListTasks", `{"pageSize":"1","status":3}`); r.at(t, "result.pageSize") != 1.0 || r.at(t, "result.tasks.#") != 1.0 {
		t.Errorf("listed: %s", r.body)
	}
	for _, params := range []string{`{"pageSize":"x"}`, `{"pageSize":1.5}`, `{"pageSize":"1 "}`, `{"pageSize":true}`, `{"historyLength":[1]}`} {
		if got := b.rpc(b.ada, "ListTasks", params).decode(t); got.Error == nil || got.Error.Code != -32602 {
			t.Errorf("%s: %+v", params, got)
		}
	}
}
