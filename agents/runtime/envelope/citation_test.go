package envelope_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

// TestCitationAccess: the access members are checked, and what may be secret is in no citation (agent runtime contract,
// section 4.5).
func TestCitationAccess(t *testing.T) {
	tests := map[string]struct{ given, want string }{
		"allowed":          {`{"source":"s","access_status":" Allowed ","source_url":"https://a.test/","excerpt":"e"}`, `{"source":"s","access_status":"allowed","source_url":"https://a.test/","excerpt":"e"}`},
		"denied":           {`{"source_title":"t","source_url":"https://a.test/","excerpt":"e","snippet":"e","access_status":"denied","restriction_reason":" workspace "}`, `{"source_title":"t","access_status":"denied","restriction_reason":"workspace"}`},
		"unknown status":   {`{"source":"s","excerpt":"e","access_status":"forbidden"}`, `{"source":"s","access_status":"denied"}`},
		"status no text":   {`{"source":"s","excerpt":"e","access_status":["allowed"]}`, `{"source":"s","access_status":"denied"}`},
		"empty status":     {`{"source":"s","excerpt":"e","access_status":""}`, `{"source":"s","access_status":"denied"}`},
		"no status":        {`{"source":"s","excerpt":"e","access_status":null}`, `{"source":"s","excerpt":"e"}`},
		"partial":          {`{"source":"s","excerpt":"e","access_status":"partial"}`, `{"source":"s","excerpt":"e","access_status":"partial"}`},
		"principal":        {`{"source":"s","principal":{"schema_version":1,"acting_user_id":7,"owner_type":"user","owner_key":"k","token_id":"t","audience_claims":{"a":1},"binding":{},"request_metadata":{},"client_id":["x"]}}`, `{"source":"s","principal":{"schema_version":1,"acting_user_id":7,"owner_type":"user"}}`},
		"empty principal":  {`{"source":"s","principal":{"owner_key":"k"}}`, `{"source":"s"}`},
		"no principal":     {`{"source":"s","principal":"root"}`, `{"source":"s"}`},
		"secrets":          {`{"source":"s","token_id":"t","Cookie":"c","nonce":"n","api_key":"k","own":{"session_id":"x","deep":[{"password":"p","page":3}]},"capabilities":["a"]}`, `{"source":"s","own":{"deep":[{"page":3}]}}`},
		"password in url":  {`{"source":"s","source_url":"https://u:p@a.test/"}`, `{"source":"s"}`},
		"nothing but keys": {`{"token":"t"}`, ``},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			given, err := value.Decode([]byte("["+test.given+"]"), value.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			got := value.EncodeText(envelope.Citations(given))
			want, err := value.Decode([]byte("["+test.want+"]"), value.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff(value.EncodeText(want), got); difference != "" {
				t.Error(difference)
			}
		})
	}
}

// TestCitationKeepsItsSource: what was handed in is not changed.
func TestCitationKeepsItsSource(t *testing.T) {
	given := []any{map[string]any{"source": "s", "own": map[string]any{"token": "t"}}}
	before := value.EncodeText(given)
	if got := value.EncodeText(envelope.Citations(given)); strings.Contains(got, "token") || value.EncodeText(given) != before {
		t.Errorf("%s, and what was given is %s", got, value.EncodeText(given))
	}
}
