package tool

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

// entriesOf reads declarations in the order of the text.
func entriesOf(t testing.TB, text string) []Entry {
	t.Helper()
	members, err := fixturetest.Members([]byte(text))
	if err != nil {
		t.Fatal(err)
	}

	entries := make([]Entry, len(members))
	for index, member := range members {
		entries[index] = Entry{Name: member.Name, Value: member.Value}
	}
	return entries
}

func declare(t testing.TB, text string) Declarations {
	t.Helper()
	set, rejected := Declare(entriesOf(t, text))
	if len(rejected) > 0 {
		t.Fatalf("rejected: %v", rejected)
	}
	return set
}

func TestDeclareReportsWhatItDrops(t *testing.T) {
	entries := entriesOf(t, `{
		"Bad Name": {"description": "x"}, "wiki/read": {"description": "ok"}, "str": "nope", "client/x": {"scope": "session"},
		"a": {"name": "z/other", "description": "the declared name wins"}, "n": null, "list": [], "q": {"name": 7, "description": "x"}}`)
	set, rejected := Declare(entries)
	want := []Rejection{
		{"Bad Name", "invalid_conversation_tool_declaration: name"},
		{"str", "declaration must be an array"},
		{"client/x", "invalid_runtime_tool_declaration: scope"},
		{"n", "declaration must be an array"},
		{"list", "invalid_conversation_tool_declaration: description"},
		{"q", "invalid_conversation_tool_declaration: name"},
	}
	if difference := cmp.Diff(want, rejected); difference != "" {
		t.Error(difference)
	}
	if difference := cmp.Diff([]string{"wiki/read", "z/other"}, set.names); difference != "" {
		t.Error(difference)
	}
	report := RejectionReport(rejected[:1], set.Len())
	if !value.Equal(report, decode(t, `{"rejected": [{"name": "Bad Name", "reason": "invalid_conversation_tool_declaration: name"}], "rejected_count": 1, "accepted_count": 2}`)) {
		t.Errorf("reports %v", report)
	}
	if disabled := DisabledReport(rejected[:0]); disabled["reason"] != "all_declarations_rejected" || disabled["rejected_count"] != 0 {
		t.Errorf("reports %v", disabled)
	}
}

func TestFieldsAreListedInOrderAndOnce(t *testing.T) {
	wrong := map[string]any{
		"name": "Other/tool", "source": "third", "description": " ", "parameters": 1, "executor": "else", "scope": "day",
		"runtime": "x", "parameter_bindings": 1, "client_context_bindings": 1, "parameter_defaults": []any{1},
	}
	want := []string{"name", "source", "description", "parameters", "executor", "scope", "runtime", "parameter_bindings", "parameter_defaults"}
	if difference := cmp.Diff(want, ValidateClient(wrong)); difference != "" {
		t.Errorf("client: %s", difference)
	}
	wrong["source"] = "Bad source"
	if difference := cmp.Diff(want, ValidateServer(wrong)); difference != "" {
		t.Errorf("server: %s", difference)
	}
	if got := ValidateClient(nil); !slices.Equal(got, []string{"name", "description", "executor", "scope"}) {
		t.Errorf("nothing: %v", got)
	}
}

func TestNames(t *testing.T) {
	for name, safe := range map[string]string{
		"client/search-docs": "client__search__docs", "---": "tool", "": "tool", "9lives": "tool_9lives", "_x_": "x", "Ab": "Ab",
	} {
		if got := ProviderSafeName(name); got != safe {
			t.Errorf("%q is safe as %q, want %q", name, got, safe)
		}
	}
	if got := ProviderSafeName(" a/b "); got != "a__b" {
		t.Errorf("padding becomes %q", got)
	}
	for _, name := range []string{"A", "a/", "/a", "a/b/c", "1a", "a b", "a/B", "a/b\n", "ä"} {
		if _, err := NormalizeServer(map[string]any{"name": name, "description": "x"}); err == nil {
			t.Errorf("%q is a valid name", name)
		}
	}
}

// An alias that several tools have resolves to none of them, whichever was declared first.
func TestResolveAliases(t *testing.T) {
	set := declare(t, `[
		{"name": "a/b-c", "description": "x", "provider_aliases": ["first", 7]},
		{"name": "a/b", "description": "x", "provider_safe_name": "chosen", "provider_aliases": ["first", "a/b-c", "second"]},
		{"name": "a__b__c", "description": "named as the alias of the first"},
		{"name": "git-hub/list", "description": "x"}, {"name": "git/hub-list", "description": "x", "provider_aliases": ["git__hub__list"]}]`)
	for used, want := range map[string]string{
		"a/b-c": "a/b-c", "a__b__c": "a__b__c", "first": "first", "second": "a/b", "chosen": "a/b", "a__b": "a__b", "none": "none", "": "",
		"git__hub__list": "git__hub__list", "git-hub/list": "git-hub/list",
	} {
		if got := set.Resolve(used); got != want {
			t.Errorf("%q resolves to %q, want %q", used, got, want)
		}
	}
}

func TestLaterDeclarationCountsAtTheFirstPlace(t *testing.T) {
	set := declare(t, `[{"name": "a", "description": "1"}, {"name": "b", "description": "2"}, {"name": "a", "description": "3"}]`)
	first, _ := set.Get("a")
	if !slices.Equal(set.names, []string{"a", "b"}) || first.Description() != "3" {
		t.Errorf("%v, %q", set.names, first.Description())
	}
}

func TestRuntimeMetadata(t *testing.T) {
	got := RuntimeMetadata(decode(t, `{"api_key": "sk", "max_tokens": 5, "nested": {"token": "kept", "n": null}, "n": null, "list": [null, 1], "": 1, "empty": {}}`))
	want := decode(t, `{"api_key": "[redacted]", "max_tokens": "[redacted]", "nested": {"token": "kept"}, "list": [1], "empty": {}}`)
	if !value.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	for _, none := range []any{nil, "text", []any{1}, 5} {
		if got := RuntimeMetadata(none); len(got) != 0 {
			t.Errorf("%v gives %v", none, got)
		}
	}
}

func TestBindingsAreFolded(t *testing.T) {
	set := declare(t, `[{"name": "a", "description": "x", "client_context_bindings": ["post_id"],
		"parameter_bindings": {" user ": " client_context.user.id ", "key": {"source": "context", "path": "k", "sensitive": true, "authoritative": false, "default": null}}}]`)
	declaration, _ := set.Get("a")
	want := decode(t, `{"post_id": {"source": "context", "path": "post_id"}, "user": {"source": "client_context", "path": "user.id"},
		"key": {"source": "context", "path": "k", "sensitive": true, "default": null}}`)
	if got := declaration.Field("parameter_bindings"); !value.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if declaration.Field("client_context_bindings") == nil {
		t.Error("the short form is gone")
	}
}

func TestBadBindings(t *testing.T) {
	for _, text := range []string{
		`5`, `null`, `"context.x"`, `["context.x"]`, `{"": "context.x"}`, `{"p": "context"}`, `{"p": "context. "}`, `{"p": "env.x"}`, `{"p": 5}`,
		`{"p": {"source": "context"}}`, `{"p": {"source": "env", "path": "x"}}`, `{"p": {"source": "context", "path": "x", "authoritive": true}}`,
		`{"p": {"source": "context", "path": "x", "sensitive": 1}}`, `{"p": {"source": "context", "path": "x", "authoritative": "yes"}}`,
	} {
		_, err := NormalizeServer(map[string]any{"name": "a", "description": "x", "parameter_bindings": decode(t, text)})
		if err == nil || err.Error() != "invalid_server_tool_declaration: parameter_bindings" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestNilDeclarationIsUsable(t *testing.T) {
	var none *Declaration
	if none.Name() != "" || none.Source() != "" || len(none.Runtime()) != 0 || none.Object() != nil || len(none.ModelParameters()) != 0 {
		t.Error("a nil declaration says something")
	}
}

func TestNormalizingTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := declarationValue().Draw(t, "declaration")
		once, err := NormalizeRequest(given)
		if err != nil {
			t.Skip("the declaration is refused: draw another")
		}
		again, err := NormalizeRequest(value.Clone(once.Object()))
		if err != nil {
			t.Fatalf("%v became invalid: %v", once.Object(), err)
		}
		if !value.Equal(once.Object(), again.Object()) {
			t.Fatal(cmp.Diff(once.Object(), again.Object()))
		}
	})
}

// declarationValue draws declarations that are nearly always valid.
func declarationValue() *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		declared := rapid.MapOfN(rapid.SampledFrom([]string{"categories", "api_key", "action_policy", "required_capability", "sensitive_parameters", "mutating"}), jsonValue(1), 0, 3).Draw(t, "extensions")
		declared["name"] = rapid.SampledFrom([]string{"a", "wiki/read", "client/pick", "my-tool"}).Draw(t, "name")
		declared["description"] = rapid.SampledFrom([]string{"d", " padded "}).Draw(t, "description")
		if rapid.Bool().Draw(t, "parameters?") {
			declared["parameters"] = map[string]any{"properties": rapid.MapOfN(member(), jsonValue(1), 0, 3).Draw(t, "properties")}
		}
		if rapid.Bool().Draw(t, "runtime?") {
			declared["runtime"] = rapid.MapOfN(member(), jsonValue(2), 0, 3).Draw(t, "runtime")
		}
		if rapid.Bool().Draw(t, "defaults?") {
			declared["parameter_defaults"] = rapid.MapOfN(rapid.StringMatching(`[a-z]{1,3}|token`), jsonValue(1), 0, 3).Draw(t, "defaults")
		}
		if rapid.Bool().Draw(t, "bindings?") {
			declared["parameter_bindings"] = map[string]any{"p": "context.a.b", "q": map[string]any{"source": "client_context", "path": "x", "authoritative": true}}
		}
		return declared
	})
}

func FuzzDeclare(f *testing.F) {
	f.Add([]byte(`{"wiki/read": {"description": "d", "parameters": {"required": ["a"], "properties": {"b": {"required": true, "items": {"writeOnly": true}}}}}}`), []byte(`{"a": 1, "token": [{"b": {}}]}`))
	f.Add([]byte(`[{"name": "client/x", "client_context_bindings": ["a"], "provider_aliases": ["y"], "parameter_bindings": {"z": {"source": "context", "path": "a.b", "authoritative": true}}}]`), []byte(`{}`))
	f.Add([]byte(`[1, null, "x", {"name": "x", "description": "y", "runtime": {"duplicate_policy": "once"}}]`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, text, parameters []byte) {
		declared, err := value.Decode(text, value.Limits{Bytes: 1 << 16})
		if err != nil {
			return
		}
		entries := Entries(declared)
		set, rejected := Declare(entries)
		if set.Len()+len(rejected) > len(entries) {
			t.Fatalf("%d entries gave %d tools and %d rejections", len(entries), set.Len(), len(rejected))
		}
		written, _ := value.Decode(parameters, value.Limits{Bytes: 1 << 16})
		for name := range set.All() {
			declaration, _ := set.Get(name)
			declaration.ModelParameters()
			prepared, failure := Prepare(ModelCall{Name: declaration.SafeName(), Parameters: value.Assoc(written), ID: "c"}, set, map[string]any{"a": map[string]any{"b": 1}})
			if failure == nil && prepared.Call.Declaration == nil {
				t.Fatal("a prepared call has no declaration")
			}
		}
		Visible(entries, value.Assoc(written))
	})
}

func TestDeclareIsLinear(t *testing.T) {
	var text strings.Builder
	text.WriteByte('{')
	for index := range 20000 {
		if index > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `"t%d":{"description":"x"}`, index)
	}
	text.WriteByte('}')
	set := declare(t, text.String())
	if set.Len() != 20000 || set.names[7] != "t7" {
		t.Errorf("%d tools, the eighth is %s", set.Len(), set.names[7])
	}
}
