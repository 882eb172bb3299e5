package a2a

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

const sentOne = `"messageId":"ID","role":"ROLE_USER","extensions":["urn:example:one","urn:example:two"],"metadata":{"id":9007199254740993,"f":1.50,"deep":{"n":[12345678901234567890]}},` +
	`"parts":[{"text":"  <b>bold</b>\u0007 ","mediaType":"text/html","metadata":{"k":"v"}},{"text":"plain"},{"text":"  "},` +
	`{"data":{"n":9007199254740993,"list":[1.0,1e3]},"filename":"named.json","mediaType":"application/vnd.x+json","metadata":{"m":9007199254740993}},` +
	`{"raw":"eyJhIjoxfQ==","mediaType":"application/json"},{"raw":"AAEC","filename":"f.bin","mediaType":"application/octet-stream"},` +
	`{"url":"https://files.example/x","mediaType":"image/png","filename":"x.png"},{"data":[1,"two",null]},{"data":"text"},{"data":9007199254740993}]`

const sentOld = `"messageId":"ID","role":"user","kind":"message","extensions":["urn:example:one"],"metadata":{"id":9007199254740993},` +
	`"parts":[{"kind":"text","text":"plain","metadata":{"k":9007199254740993}},{"kind":"data","data":{"n":9007199254740993},"metadata":{"m":1}},` +
	`{"kind":"file","file":{"bytes":"eyJhIjoxfQ==","mimeType":"application/json"}},{"kind":"file","file":{"uri":"https://files.example/x","mimeType":"image/png","name":"x.png"}}]`

const sentOldREST = `"messageId":"ID","role":"ROLE_USER","extensions":["urn:example:one"],"metadata":{"id":9007199254740993},` +
	`"content":[{"text":"plain","metadata":{"k":9007199254740993}},{"data":{"data":{"n":9007199254740993}}},{"file":{"fileWithBytes":"eyJhIjoxfQ==","mimeType":"application/json"}}]`

// exactJSON decodes with the digits of numbers, for comparison.
func exactJSON(t *testing.T, document string) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	var value map[string]any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return value
}

// firstOfHistory digs the first message of the history out of an answer of any binding.
func firstOfHistory(t *testing.T, body string) map[string]any {
	t.Helper()
	document := exactJSON(t, body)
	for _, inner := range []string{"result", "task"} {
		if found, is := document[inner].(map[string]any); is {
			document = found
		}
	}
	history, _ := document["history"].([]any)
	if len(history) == 0 {
		t.Fatalf("no history in %s", body)
	}
	message, _ := history[0].(map[string]any)
	for _, ours := range []string{"taskId", "contextId"} {
		delete(message, ours)
	}
	return message
}

// TestHistoryIsWhatWasSent: metadata, extensions, the kind and name of each part and the digits of numbers come back as they were
// sent, by the same binding, in the answer and when the task is read later.
func TestHistoryIsWhatWasSent(t *testing.T) {
	b := setup(t)
	for name, c := range map[string]struct{ path, before, message, after, get string }{
		"1.0 JSON-RPC": {"/a2a/echo", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{`, sentOne, `}}}`, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"TASK"}}`},
		"1.0 REST":     {"/a2a/echo/rest/message:send", `{"message":{`, sentOne, `}}`, "/a2a/echo/rest/tasks/TASK"},
		"0.3 JSON-RPC": {"/a2a/echo", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{`, sentOld, `}}}`, `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"TASK"}}`},
		"0.3 REST":     {"/a2a/echo/v1/message:send", `{"message":{`, sentOldREST, `}}`, "/a2a/echo/v1/tasks/TASK"},
	} {
		message := strings.Replace(c.message, "ID", name, 1)
		want := exactJSON(t, "{"+message+"}")
		answer := b.do("POST", c.path, b.ada, c.before+message+c.after, "User-Agent", "node") // whose files are not in base64 twice
		task, _ := cmpID(t, answer.body)
		var read reply
		if strings.HasPrefix(c.get, "/") {
			read = b.do("GET", strings.Replace(c.get, "TASK", task, 1), b.ada, "", "User-Agent", "node")
		} else {
			read = b.do("POST", "/a2a/echo", b.ada, strings.Replace(c.get, "TASK", task, 1))
		}
		for when, body := range map[string]string{"answer": answer.body, "read": read.body} {
			if diff := cmp.Diff(want, firstOfHistory(t, body)); diff != "" {
				t.Errorf("%s, %s (-sent +history):\n%s", name, when, diff)
			}
		}
	}
}

func cmpID(t *testing.T, body string) (string, bool) {
	t.Helper()
	document := exactJSON(t, body)
	for _, inner := range []string{"result", "task"} {
		if found, is := document[inner].(map[string]any); is {
			document = found
		}
	}
	id, is := document["id"].(string)
	return id, is
}

// TestHistoryAcrossBindings: what came by one binding is read by the others in their terms.
func TestHistoryAcrossBindings(t *testing.T) {
	b := setup(t)
	client := b.dial()
	metadata, _ := structpb.NewStruct(map[string]any{"k": "v", "n": 5.0})
	sent, err := client.SendMessage(calling(b.ada), &pb.SendMessageRequest{Tenant: "echo", Message: &pb.Message{
		MessageId: "g1", Role: pb.Role_ROLE_USER, Extensions: []string{"urn:example:one"}, Metadata: metadata,
		Parts: []*pb.Part{
			{Content: &pb.Part_Data{Data: structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNumberValue(1)}})}, Filename: "named"},
			{Content: &pb.Part_Raw{Raw: []byte(`{"a":1}`)}, MediaType: "application/json", Metadata: metadata},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	task := sent.GetTask()
	first := task.GetHistory()[0]
	if len(first.GetExtensions()) != 1 || first.GetMetadata().GetFields()["k"].GetStringValue() != "v" || first.GetParts()[0].GetFilename() != "named" ||
		len(first.GetParts()[0].GetData().GetListValue().GetValues()) != 1 || string(first.GetParts()[1].GetRaw()) != `{"a":1}` || first.GetParts()[1].GetMetadata() == nil {
		t.Errorf("by gRPC: %v", first)
	}
	one := firstOfHistory(t, b.rpc(b.ada, "GetTask", `{"id":"`+task.GetId()+`"}`).body)
	want := exactJSON(t, `{"messageId":"g1","role":"ROLE_USER","extensions":["urn:example:one"],"metadata":{"k":"v","n":5},"parts":[{"data":[1],"filename":"named"},{"raw":"eyJhIjoxfQ==","mediaType":"application/json","metadata":{"k":"v","n":5}}]}`)
	if diff := cmp.Diff(want, one); diff != "" {
		t.Errorf("by JSON-RPC (-want +got):\n%s", diff)
	}
	old := firstOfHistory(t, b.rpc(b.ada, "tasks/get", `{"id":"`+task.GetId()+`"}`).body)
	want = exactJSON(t, `{"kind":"message","messageId":"g1","role":"user","extensions":["urn:example:one"],"metadata":{"k":"v","n":5},"parts":[{"kind":"data","data":{"value":[1]},"metadata":{"data_part_compat":true}},{"kind":"file","file":{"bytes":"eyJhIjoxfQ==","mimeType":"application/json"},"metadata":{"k":"v","n":5}}]}`)
	if diff := cmp.Diff(want, old); diff != "" {
		t.Errorf("by JSON-RPC of 0.3 (-want +got):\n%s", diff)
	}
	if _, err := client.GetTask(calling(b.ada), &pb.GetTaskRequest{Tenant: "echo", Id: b.rpc(b.ada, "SendMessage", `{"message":{"messageId":"g2","role":"ROLE_USER","parts":[{"data":{"n":12345678901234567890}}]}}`).text(t, "result.task.id")}); err != nil {
		t.Errorf("a large number by gRPC: %v", err)
	}
}

// TestSecretsStayOut: what is taken out of the metadata does not come back with its digits.
func TestSecretsStayOut(t *testing.T) {
	b := setup(t)
	r := b.rpc(b.ada, "SendMessage", withMetadata("m1", `{"mentionable":{"identity_evidence":[{"n":9007199254740993}],"other":9007199254740993},"x402.payment.payload":{"secret":9007199254740993},"n":9007199254740993}`))
	got, _ := firstOfHistory(t, r.body)["metadata"].(map[string]any)
	if diff := cmp.Diff(exactJSON(t, `{"mentionable":{"other":9007199254740993},"n":9007199254740993}`), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Contains(string(b.engine.last().Route), "secret") || strings.Contains(string(b.engine.last().Route), "identity_evidence") {
		t.Errorf("stored: %s", b.engine.last().Route)
	}
}

// TestDigitsOfArtifacts: structured results keep the digits of their numbers.
func TestDigitsOfArtifacts(t *testing.T) {
	b := setup(t)
	r := b.rpc(b.ada, "SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"n":9007199254740993}}]}}`)
	if !strings.Contains(r.body, `"artifacts":[{`) || strings.Count(r.body, "9007199254740993") != 2 {
		t.Errorf("echoed: %s", r.body)
	}
}
