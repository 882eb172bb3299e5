package a2a

import (
	"encoding/json"
	"testing"
)

func TestLowerCamel(t *testing.T) {
	for in, want := range map[string]string{
		`{"params":{"history_length":1,"context_id":"a_b"}}`:                `{"params":{"historyLength":1,"contextId":"a_b"}}`,
		`{"message":{"message_id":"m_1","metadata":{"own_key":{"x_y":1}}}}`: `{"message":{"messageId":"m_1","metadata":{"own_key":{"x_y":1}}}}`,
		`{"parts":[{"data":{"a_b":1}},{"media_type":"text/plain"}]}`:        `{"parts":[{"data":{"a_b":1}},{"mediaType":"text/plain"}]}`,
		`{"a":1}`:                                `{"a":1}`,
		`{ "a_b" : [ ] , "c_d":{} }`:             `{ "aB" : [ ] , "cD":{} }`,
		`{"esc\u0061_b":"\"x_y\":1"}`:            `{"esc\u0061_b":"\"x_y\":1"}`,
		`{"a_b":`:                                `{"a_b":`,
		`[{"a_b":tru,"c_d":1]`:                   `[{"a_b":tru,"c_d":1]`,
		`{"page_size":"5","historyLength":"-1"}`: `{"pageSize":5,"historyLength":-1}`,
		`{"pageSize":2.0,"configuration":{"history_length": 1e1 }}`: `{"pageSize":2,"configuration":{"historyLength": 10 }}`,
		`{"pageSize":"x","historyLength":1.5}`:                      `{"pageSize":"x","historyLength":1.5}`,
		`{"pageSize":"","historyLength":"05"}`:                      `{"pageSize":"","historyLength":"05"}`,
		`{"pageSize":null,"historyLength":"3000000000"}`:            `{"pageSize":null,"historyLength":"3000000000"}`,
		`{"metadata":{"pageSize":"5"},"name":"5"}`:                  `{"metadata":{"pageSize":"5"},"name":"5"}`,
		`{"role":1,"status":8}`:                                     `{"role":"ROLE_USER","status":"TASK_STATE_AUTH_REQUIRED"}`,
		`{"role":9,"status":"TASK_STATE_FAILED"}`:                   `{"role":9,"status":"TASK_STATE_FAILED"}`,
		`{"parts":[{"data":null }]}`:                                `{"parts":[{"data":null ,"raw":"bnVsbA==","mediaType":"application/json"}]}`,
		`{"text":null,"data":null,"media_type":"a/b"}`:              `{"text":null,"data":null,"mediaType":"a/b","raw":"bnVsbA==","mediaType":"application/json"}`,
		`{"text":"x","data":null}`:                                  `{"text":"x","data":null}`,
		`{"metadata":{"data":null}}`:                                `{"metadata":{"data":null}}`,
		``:                                                          ``,
	} {
		if got := string(lowerCamel([]byte(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
	if got := lowerCamelQuery("history_length=1&page_size=2&x=a_b"); got != "historyLength=1&pageSize=2&x=a_b" {
		t.Errorf("query %s", got)
	}
}

// FuzzLowerCamel looks for documents that are broken by the renaming.
func FuzzLowerCamel(f *testing.F) {
	f.Add([]byte(`{"a_b":[1,"c_d",{"e_f":null,"metadata":{"g_h":1}}],"x":"\\\""}`))
	f.Add([]byte(`[[[[{"_":1,"__a":2}]]]]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got := lowerCamel(body); json.Valid(body) != json.Valid(got) {
			t.Fatalf("%q became %q", body, got)
		}
	})
}
