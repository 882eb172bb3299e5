package tool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/agents/runtime/value"
)

func TestBuildOrder(t *testing.T) {
	set := declare(t, `[{"name": "a", "description": "x",
		"parameter_defaults": {"d": "default", "over": "default", "fixed": "default", "api_key": "sk"},
		"client_context_bindings": ["post_id"],
		"parameter_bindings": {
			"soft": "client_context.user.id", "softdefault": {"source": "runtime_context", "path": "no", "default": {"a": 1}},
			"blank": "context.blank", "null": "context.null",
			"hard": {"source": "caller_context", "path": "who", "authoritative": true},
			"harddefault": {"source": "context", "path": "no.where", "authoritative": true, "default": "safe"},
			"fixed": {"source": "context", "path": "no", "authoritative": true},
			"gone": {"source": "context", "path": "no", "authoritative": true}}}]`)
	context := decode(t, `{"post_id": 7, "blank": "", "null": null, "client_context": {"user": {"id": "u1"}},
		"caller_context": {"who": null}, "ambient": "never", "token": "never"}`).(map[string]any)
	written := decode(t, `{"over": "model", "soft": "model", "hard": "model", "harddefault": "model", "fixed": "model", "gone": "model", "extra": [1]}`).(map[string]any)
	prepared, failure := Prepare(ModelCall{Name: "a", Parameters: written, ID: " c1 "}, set, context)
	if failure != nil {
		t.Fatal(failure.Result)
	}
	want := decode(t, `{"d": "default", "over": "model", "fixed": "default", "api_key": "[redacted]", "post_id": 7, "soft": "model",
		"softdefault": {"a": 1}, "hard": null, "harddefault": "safe", "extra": [1]}`)
	if !value.Equal(prepared.Call.Parameters, want) {
		t.Error(cmp.Diff(want, prepared.Call.Parameters))
	}
	if !value.Equal(prepared.Redacted, written) {
		t.Errorf("records show %v", prepared.Redacted)
	}
	if !value.Equal(prepared.Call.Object(), map[string]any{
		"tool_name": "a", "parameters": want, "id": "c1",
		"metadata": map[string]any{"source": "host", "provider_tool_name": "a", "tool_call_id": "c1"},
	}) {
		t.Errorf("prepared %v", prepared.Call.Object())
	}
	if _, has := context["tool_call_id"]; has {
		t.Error("the context was changed")
	}
}

func TestPrepareFailures(t *testing.T) {
	set := declare(t, `{"wiki/read": {"description": "d", "parameters": {"required": ["title", "title", 5], "properties": {
		"zone": {"required": true}, "lang": {"required": true}, "filter": {"required": ["x"]}, "free": {"required": false}}},
		"runtime": {"environment": "runtime_local"}}}`)
	for _, c := range []struct{ name, parameters, result string }{
		{"none", `{}`, `{"success": false, "tool_name": "none", "error": "Tool 'none' not found", "metadata": {"error_type": "tool_not_found"}}`},
		{"wiki__read", `{"title": "", "lang": null, "filter": 0}`, `{"success": false, "tool_name": "wiki/read",
			"error": "Tool \"wiki/read\" requires the following parameters: title, lang, zone.", "runtime": {"environment": "runtime_local"},
			"metadata": {"error_type": "missing_required_parameters", "missing_parameters": ["title", "lang", "zone"]}}`},
	} {
		prepared, failure := Prepare(ModelCall{Name: c.name, Parameters: decode(t, c.parameters).(map[string]any)}, set, nil)
		if failure == nil {
			t.Fatalf("%s is prepared: %v", c.name, prepared.Call)
		}
		if !value.Equal(failure.Result, decode(t, c.result)) {
			t.Error(cmp.Diff(decode(t, c.result), failure.Result))
		}
		if prepared.ModelName != c.name || prepared.ParametersSHA256 == "" || prepared.Redacted == nil {
			t.Errorf("records lack %+v", prepared)
		}
	}
}

func TestEmptyParametersHash(t *testing.T) {
	prepared, _ := Prepare(ModelCall{Name: "x"}, Declarations{}, nil)
	if want := Hash([]any{}); prepared.ParametersSHA256 != want {
		t.Errorf("hash %s, want %s", prepared.ParametersSHA256, want)
	}
	if exposure := prepared.Exposure(); !value.Flag(exposure["parameters_redacted"]) || exposure["parameters_sha256"] != prepared.ParametersSHA256 {
		t.Errorf("exposes %v", exposure)
	}
}

func TestModelParameters(t *testing.T) {
	set := declare(t, `[{"name": "a", "description": "x",
		"parameters": {"type": "object", "required": ["q", "who"], "properties": {"q": {}, "who": {}},
			"allOf": [{"required": ["who"], "properties": {"who": {}}, "anyOf": [{"required": ["who", "q"]}]}]},
		"parameter_bindings": {"who": {"source": "context", "path": "who", "authoritative": true}, "q": "context.q"}},
		{"name": "short", "description": "x", "parameters": {"who": {"type": "string"}, "q": {"type": "string"}},
		"parameter_bindings": {"who": {"source": "context", "path": "who", "authoritative": true}}}]`)
	a, _ := set.Get("a")
	want := decode(t, `{"type": "object", "required": ["q"], "properties": {"q": {}}, "allOf": [{"required": [], "properties": {}, "anyOf": [{"required": ["q"]}]}]}`)
	if got := a.ModelParameters(); !value.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if full := value.Assoc(value.Assoc(a.Field("parameters"))["properties"]); full["who"] == nil {
		t.Error("the declaration itself lost a parameter")
	}
	short, _ := set.Get("short")
	if got := short.ModelParameters(); !value.Equal(got, decode(t, `{"q": {"type": "string"}}`)) {
		t.Errorf("short form gives %v", got)
	}
}

func TestRedaction(t *testing.T) {
	set := declare(t, `[{"name": "a", "description": "x", "sensitive_parameters": ["pin", "user.mail", "rows.*.iban", "every.*"],
		"parameter_sensitivity": {"zip": true, "street": false, "k": "city"},
		"parameter_bindings": {"bound": {"source": "context", "path": "x", "sensitive": true}},
		"parameters": {"properties": {"hash": {"writeOnly": true}, "deep": {"properties": {"code": {"format": "password"}}},
			"list": {"items": {"properties": {"v": {"x-sensitive": true}}}}, "flat": {"items": {"secret": true}}, "open": {"sensitive": "yes"}}}}]`)
	declaration, _ := set.Get("a")
	parameters := decode(t, `{"pin": 1, "user": {"mail": "m", "name": "n"}, "rows": [{"iban": "i", "n": 1}], "every": {"a": 1, "b": [2]},
		"zip": 1, "street": "s", "city": "c", "bound": "b", "hash": "h", "deep": {"code": {"x": 1}, "other": 1}, "list": [{"v": 1, "w": 2}],
		"flat": ["a", {"b": 1}], "open": "o", "API-Key": "k", "nested": {"Session_ID": "s", "list": [{"x.access_token": "t"}]}, "user.mail": "m"}`).(map[string]any)
	want := decode(t, `{"pin": "[redacted]", "user": {"mail": "[redacted]", "name": "n"}, "rows": [{"iban": "[redacted]", "n": 1}],
		"every": {"a": "[redacted]", "b": "[redacted]"}, "zip": "[redacted]", "street": "s", "city": "[redacted]", "bound": "[redacted]",
		"hash": "[redacted]", "deep": {"code": "[redacted]", "other": 1}, "list": [{"v": "[redacted]", "w": 2}], "flat": ["[redacted]", "[redacted]"],
		"open": "o", "API-Key": "[redacted]", "nested": {"Session_ID": "[redacted]", "list": [{"x.access_token": "[redacted]"}]}, "user.mail": "[redacted]"}`)
	if got := RedactParameters(parameters, declaration); !value.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func TestSensitiveNames(t *testing.T) {
	for _, name := range []string{"api_key", "APIKEY", "api-key", "Authorization", "auth_token", "bearer", "cookies", "credentials", "nonce", "password2", "private-key", "client_secret", "session_id", "sessionid", "max_tokens"} {
		if !SensitiveName(name) {
			t.Errorf("%s is not sensitive", name)
		}
	}
	for _, name := range []string{"", "key", "author", "session", "pass", "private"} {
		if SensitiveName(name) {
			t.Errorf("%s is sensitive", name)
		}
	}
}

// Whatever the shape of the parameters, a value below a declared path or a sensitive name is not in the records.
func TestRedactionLeaksNothing(t *testing.T) {
	const secret = "hunter2"
	rapid.Check(t, func(t *rapid.T) {
		segments := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "rows"}), 1, 4).Draw(t, "path")
		byName := rapid.Bool().Draw(t, "by name")
		path := strings.Join(segments, ".")
		if byName {
			path = "unrelated"
		}
		declaration, err := NormalizeServer(map[string]any{"name": "x", "description": "x", "sensitive_parameters": []any{path}})
		if err != nil {
			t.Fatal(err)
		}
		parameters := planted(t, segments, byName, secret).(map[string]any)
		redacted := RedactParameters(parameters, declaration)
		if strings.Contains(string(Canonical(redacted)), secret) {
			t.Fatalf("%s leaks from %v: %v", path, parameters, redacted)
		}
	})
}

// planted builds a value with the secret at the path, and drawn neighbours; a "*" is a list or any name.
func planted(t *rapid.T, segments []string, byName bool, secret string) any {
	if len(segments) == 0 {
		return rapid.SampledFrom([]any{secret, []any{secret}, map[string]any{"deep": []any{secret}}}).Draw(t, "secret")
	}
	first, inner := segments[0], planted(t, segments[1:], byName, secret)
	if byName && len(segments) == 1 {
		first = rapid.SampledFrom([]string{"apiKey", "my_token", "PASSWORD"}).Draw(t, "name")
	}
	if first == "*" {
		if rapid.Bool().Draw(t, "list") {
			return map[string]any{"wrapped": inner}
		}
		first = "any"
	}
	object := rapid.MapOfN(rapid.SampledFrom([]string{"x", "y"}), jsonValue(1), 0, 2).Draw(t, "neighbours")
	object[first] = inner
	return object
}
