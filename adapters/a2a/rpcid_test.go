package a2a

import (
	"strings"
	"testing"
)

// TestIDsComeBackAsTheyWere: numbers that no float holds, too, in answers, errors and each event of a stream.
func TestIDsComeBackAsTheyWere(t *testing.T) {
	b := setup(t)
	for _, id := range []string{"7", "0", "-1", "1.5", "1.0", "9007199254740993", "1763838641123456789", "123456789012345678901234567890", `"x"`, "null"} {
		for method, params := range map[string]string{
			"ListTasks": "{}", "GetTask": `{"id":"none"}`, "Nope": "{}", "SendMessage": message("m1", "hello"), "SendStreamingMessage": message("m2", "hello"),
		} {
			body := b.do("POST", "/a2a/echo", b.ada, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`).body
			answers := strings.Count(body, `"jsonrpc"`)
			if exact := strings.Count(body, `{"jsonrpc":"2.0","id":`+id+`,`); answers == 0 || exact != answers {
				t.Errorf("%s of %s: %d of %d answers have the id: %s", method, id, exact, answers, body)
			}
		}
	}
}
