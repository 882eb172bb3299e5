package a2a

import (
	"encoding/json"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// sdkAnswer is an answer of the SDK, which reads the id of a request into a Go value and writes that.
func sdkAnswer(tb rapid.TB, id string) []byte {
	var read any
	if err := json.Unmarshal([]byte(id), &read); err != nil {
		tb.Fatalf("%s: %v", id, err)
	}
	body, err := json.Marshal(struct {
		JSONRPC string `json:"jsonrpc"`
		ID      any    `json:"id"`
		Result  string `json:"result"`
	}{"2.0", read, "an answer"})
	if err != nil {
		tb.Fatalf("%s: %v", id, err)
	}
	return body
}

func checkID(tb rapid.TB, id string) {
	want := `{"jsonrpc":"2.0","id":` + id + `,"result":"an answer"}`
	if got := (&call{id: json.RawMessage(id)}).withExactID(sdkAnswer(tb, id)); string(got) != want {
		tb.Fatalf("the request had the id %s, and the answer is %s", id, got)
	}
}

// TestExactID: an answer has the id of its request, whatever the SDK made of it.
func TestExactID(t *testing.T) {
	for _, id := range []string{
		`"a"`, `"7"`, `""`, `0`, `7`, `-7`, `1.0`, `1e3`, `-0.0`, `999999999999999`, `9007199254740992`, `9007199254740993`, `-9007199254740993`,
		`12345678901234567890`, `1000000000000000000000000`, `1e-7`,
	} {
		checkID(t, id)
	}
	rapid.Check(t, func(t *rapid.T) { checkID(t, strconv.FormatInt(rapid.Int64().Draw(t, "id"), 10)) })
}

// TestPlainText: what plainText reads is what encoding/json reads.
func TestPlainText(t *testing.T) {
	for _, value := range []string{`"SendMessage"`, `"message/send"`, `"a\"b"`, `"\u0041"`, `""`, `"ä"`, `7`, `null`, `{}`, `"`, ``} {
		var want string
		err := json.Unmarshal([]byte(value), &want)
		if got := plainText(json.RawMessage(value)); got != "" && (err != nil || got != want) {
			t.Errorf("%s reads as %q; want %q, %v", value, got, want, err)
		}
	}
	if plainText(json.RawMessage(`"SendMessage"`)) != "SendMessage" {
		t.Error("the name of a method is left to encoding/json")
	}
}
