package envelope_test

import (
	"encoding/json"
	"strconv"

	"pgregory.net/rapid"

	"inbox/agents/runtime/envelope"
)

// words mixes what the contract gives a meaning with what it does not.
var words = rapid.OneOf(
	rapid.SampledFrom([]string{
		"", " ", "type", "text", "tool_call", "tool_result", "user", "assistant", "system", "tool_name", "error", "1", "a\nb",
		"agent_framework", "human_readable_summary", "2024-01-15T10:30:00Z", "<b>&", "é\u2028",
	}),
	rapid.StringMatching(`[a-z]{1,8}`),
)

var numbers = rapid.Map(rapid.Int(), func(n int) any { return json.Number(strconv.Itoa(n)) })

// values draws any JSON value up to the depth.
func values(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just(any(nil)), rapid.Map(rapid.Bool(), func(b bool) any { return b }), words.AsAny(), numbers,
		rapid.Just(any(json.Number("1.5e3"))),
	}
	if depth > 0 {
		leaves = append(leaves,
			rapid.Map(rapid.SliceOfN(values(depth-1), 0, 3), func(list []any) any { return list }),
			rapid.Map(rapid.MapOfN(words, values(depth-1), 0, 3), func(object map[string]any) any { return object }))
	}
	return rapid.OneOf(leaves...)
}

// objects draws an object that often has the named members, each with a likely or with any value.
func objects(likely map[string]*rapid.Generator[any]) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		object := rapid.MapOfN(words, values(1), 0, 2).Draw(t, "others")
		for name, generator := range likely {
			switch rapid.IntRange(0, 9).Draw(t, "presence of "+name) {
			case 0:
				delete(object, name)
			case 1:
				object[name] = values(2).Draw(t, name)
			default:
				object[name] = generator.Draw(t, name)
			}
		}
		return object
	})
}

func anyOf[T any](choices ...T) *rapid.Generator[any] { return rapid.SampledFrom(choices).AsAny() }

func anyObject(likely map[string]*rapid.Generator[any]) *rapid.Generator[any] {
	return objects(likely).AsAny()
}

var typeNames = func() []string {
	var names []string
	for _, kind := range envelope.Types {
		names = append(names, string(kind))
	}
	return names
}()

// rows draws messages of every age.
var rows = rapid.OneOf(
	objects(map[string]*rapid.Generator[any]{
		"schema": anyOf(envelope.Schema), "version": anyOf(any("1"), any(json.Number("1"))), "type": anyOf(typeNames...),
		"role": anyOf("user", "assistant", "tool"), "content": words.AsAny(), "payload": values(2),
		"metadata": anyObject(map[string]*rapid.Generator[any]{"tool_call_id": anyOf("1", "2", "3")}), "id": words.AsAny(),
	}),
	objects(map[string]*rapid.Generator[any]{
		"role": anyOf("user", "assistant"), "content": values(1),
		"metadata": anyObject(map[string]*rapid.Generator[any]{
			"type": anyOf(append(typeNames, "multimodal", "other")...), "tool_name": anyOf("a", "b"), "error": values(0),
			"tool_call_id": anyOf("1", "2", "3"),
		}),
	}),
)

// frameworkRows draws messages of the older framework, of every type and often with odd members.
var frameworkRows = rapid.Custom(func(t *rapid.T) map[string]any {
	var names []string
	for _, kind := range envelope.FrameworkTypes() {
		names = append(names, string(kind))
	}
	message := objects(map[string]*rapid.Generator[any]{
		"timestamp": anyOf("2024-01-15T10:30:00Z"), "agent_key": anyOf("analyzer"), "tool": anyOf("list_tables"),
		"args": values(2), "phase_id": values(0), "from_manager": values(0), "is_global": values(0),
		"metadata": values(2),
	}).Draw(t, "message")
	message["type"] = rapid.SampledFrom(names).Draw(t, "type")
	message["content"] = values(2).Draw(t, "content")
	if message["type"] == string(envelope.Action) && rapid.Bool().Draw(t, "without content") {
		delete(message, "content")
	}
	return message
})
