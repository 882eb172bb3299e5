package a2a

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"nothing":      {`{"message":{"parts":[{"text":"identity_evidence"}]}}`, `{"message":{"parts":[{"text":"identity_evidence"}]}}`},
		"first":        {`{"metadata":{"mentionable":{"identity_evidence":[{"a":1}], "agent_chain":{"hop":1}}}}`, `{"metadata":{"mentionable":{ "agent_chain":{"hop":1}}}}`},
		"last":         {`{"metadata":{"mentionable":{"agent_chain":{"hop":1} , "identity_evidence":[1]}}}`, `{"metadata":{"mentionable":{"agent_chain":{"hop":1}}}}`},
		"middle":       {`{"metadata":{"mentionable":{"a":1,"verifiable_credentials":[],"b":2}}}`, `{"metadata":{"mentionable":{"a":1,"b":2}}}`},
		"only":         {`{"metadata":{"mentionable":{"identity_evidence":[]}}}`, `{"metadata":{"mentionable":{}}}`},
		"all":          {`{"metadata":{"mentionable":{"identity_evidence":[] , "verifiable_credentials":[],"resumption_envelopes":1,"policy_resolution":{}}}}`, `{"metadata":{"mentionable":{}}}`},
		"around one":   {`{"metadata":{"mentionable":{"identity_evidence":1,"a":1,"verifiable_credentials":2,"policy_resolution":3,"b":2}}}`, `{"metadata":{"mentionable":{"a":1,"b":2}}}`},
		"twice":        {`{"metadata":{"mentionable":{"identity_evidence":1}},"metadata":{"mentionable":{"identity_evidence":2,"c":1}}}`, `{"metadata":{"mentionable":{}},"metadata":{"mentionable":{"c":1}}}`},
		"case":         {`{"Message":{"METADATA":{"mentionable":{"identity_evidence":1}}}}`, `{"Message":{"METADATA":{"mentionable":{}}}}`},
		"escaped":      {`{"m\u0065tadata":{"mentionable":{"identity\u005fevidence":"secret"}}}`, `{"m\u0065tadata":{"mentionable":{}}}`},
		"by URI":       {`{"metadata":{"https://mentionable.dev/spec/identity/v0.1":[1],"https:\/\/mentionable.dev\/ns\/identity\/v0.1":{},"x":1}}`, `{"metadata":{"x":1}}`},
		"payment":      {`{"metadata":{"x402.payment.status":"payment-submitted","x402.payment.payload":{"p":"secret"}}}`, `{"metadata":{"x402.payment.status":"payment-submitted"}}`},
		"in a part":    {`{"parts":[{"metadata":{"mentionable":{"identity_evidence":1}}}]}`, `{"parts":[{"metadata":{"mentionable":{}}}]}`},
		"elsewhere":    {`{"data":{"mentionable":{"identity_evidence":1}}}`, `{"data":{"mentionable":{"identity_evidence":1}}}`},
		"after it":     {`{"metadata":{"mentionable":{"identity_evidence":1}}} {"metadata":`, `{"metadata":{"mentionable":{}}}`},
		"hidden after": {`{"a":1} "\u0000 {"metadata":{"mentionable":{"identity_evidence":1}}}`, `{"a":1}`},
	} {
		if got := string(redact([]byte(c.in))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := redact([]byte(`"\u0000` + `" `)); string(got) != `"\u0000"` {
		t.Errorf("a text became %s", got)
	}
	if got := redact([]byte(`["\u0000",` + strings.Repeat("[", 1<<20))); got != nil {
		t.Errorf("%d bytes are left of a nest", len(got))
	}
}

// FuzzRedact checks the quick cutter against a slow one that decodes, deletes and encodes.
func FuzzRedact(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"mentionable":{"identity_evidence":[1],"a":{}}}}`, `[{"Metadata":{"x402.payment.payload":1}},2]`, `{"a":"\u0065"}`,
		`{"metadata":[{"mentionable":{"policy_resolution":1}}]}`, `{"metadata":{"mentionable":{"policy_resolution":1,"policy_resolution":2}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var before any
		if json.Unmarshal(document, &before) != nil {
			redact(document) // must not panic
			return
		}
		var after any
		got := redact(document)
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%q became %q: %v", document, got, err)
		}
		if unique(document) {
			want, _ := json.Marshal(cleaned("", "", before))
			have, _ := json.Marshal(after)
			if !bytes.Equal(want, have) {
				t.Fatalf("%q became %s, want %s", document, have, want)
			}
		}
	})
}

func cleaned(above, name string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if secretMember(above, name, key) {
				delete(v, key)
				continue
			}
			v[key] = cleaned(name, key, inner)
		}
	case []any:
		for i := range v {
			v[i] = cleaned("", "", v[i])
		}
	}
	return value
}

// unique says that no object names a member twice: decoding then loses nothing.
func unique(document []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(document))
	type level struct {
		keys  map[string]bool
		value bool
	}
	var stack []*level
	for {
		token, err := dec.Token()
		if err != nil {
			return err == io.EOF
		}
		delim, isDelim := token.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if len(stack) > 0 {
			if top := stack[len(stack)-1]; top.keys != nil {
				if !top.value {
					key, _ := token.(string)
					if top.keys[key] {
						return false
					}
					top.keys[key], top.value = true, true
					continue
				}
				top.value = false
			}
		}
		switch {
		case isDelim && delim == '{':
			stack = append(stack, &level{keys: map[string]bool{}})
		case isDelim:
			stack = append(stack, &level{})
		}
	}
}
