package loop

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// Limits of what is read from the text of a model.
const (
	maxTexts      = 8       // texts of one result
	maxTextBytes  = 1 << 20 // of one text; a longer one is no tool call
	maxCalls      = 16      // of one form in one text
	maxParameters = 32      // of one call
)

var (
	invokeForm    = regexp.MustCompile(`(?is)<invoke\s+name=["']([^"']+)["']\s*>(.*?)</invoke>`)
	parameterForm = regexp.MustCompile(`(?is)<parameter\s+name=["']([^"']+)["']\s*>(.*?)</parameter>`)
	markup        = regexp.MustCompile(`<[^>]*>`)
	entity        = regexp.MustCompile(`&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});`)
	jsonTagForm   = regexp.MustCompile(`(?is)<tool_call>\s*(.*?)\s*</tool_call>`)
	fenceForm     = regexp.MustCompile("(?is)```(?:json)?\\s*(\\{.*?\\})\\s*```")
	namedTagForm  = regexp.MustCompile(`(?is)<tool_call\s+name=["']([^"']+)["']\s*>(.*?)</tool_call>`)
	lineForm      = regexp.MustCompile(`^([A-Za-z0-9_/.:-]+)\s+(.+)$`)
	pairForm      = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_-]*)=("[^"]*"|'[^']*'|\S+)`)
	toolName      = regexp.MustCompile(`^[A-Za-z0-9_/.:-]{1,128}$`)
	parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,127}$`)
)

// ExtractToolCalls reads tool calls that a model wrote as text: function_calls XML, tool_call tags with JSON, fenced
// JSON, tags with a name attribute, and a single line "name key=value" (agent runtime contract, section 9). Calls that
// repeat name and parameters are dropped. Texts over 1 MiB are not read.
func ExtractToolCalls(texts ...string) []any {
	var found []map[string]any
	for _, text := range distinct(texts) {
		if len(text) > maxTextBytes {
			continue
		}
		found = append(found, callsOfXML(text)...)
		found = append(found, callsOfJSON(text)...)
		found = append(found, callsOfTags(text)...)
		found = append(found, callOfLine(text)...)
	}
	return withoutRepeats(found)
}

func distinct(texts []string) []string {
	var kept []string
	for _, text := range texts {
		if len(kept) < maxTexts && !slices.Contains(kept, text) {
			kept = append(kept, text)
		}
	}
	return slices.DeleteFunc(kept, func(text string) bool { return value.Trim(text) == "" })
}

func callsOfXML(text string) []map[string]any {
	if !strings.Contains(text, "<function_calls>") {
		return nil
	}

	var calls []map[string]any
	for index, match := range invokeForm.FindAllStringSubmatch(text, maxCalls) {
		name := clean(toolName, match[1])
		if name == "" {
			continue
		}

		parameters := map[string]any{}
		for _, parameter := range parameterForm.FindAllStringSubmatch(match[2], maxParameters) {
			if key := clean(parameterName, parameter[1]); key != "" {
				parameters[key] = unescape(value.Trim(markup.ReplaceAllString(parameter[2], "")))
			}
		}
		calls = append(calls, call(name, parameters, fmt.Sprintf("xml-tool-call-%d", index+1)))
	}

	return calls
}

// callsOfJSON reads tags with a JSON body, then fenced JSON; both share one count.
func callsOfJSON(text string) []map[string]any {
	var bodies []string
	for _, form := range []struct {
		mark    string
		pattern *regexp.Regexp
	}{{"<tool_call>", jsonTagForm}, {"```", fenceForm}} {
		if !strings.Contains(text, form.mark) {
			continue
		}
		for _, match := range form.pattern.FindAllStringSubmatch(text, maxCalls) {
			bodies = append(bodies, match[1])
		}
	}

	var calls []map[string]any
	for index, body := range bodies[:min(len(bodies), maxCalls)] {
		calls = append(calls, callsOfBody(body, index+1)...)
	}

	return calls
}

func callsOfBody(body string, number int) []map[string]any {
	given, is := decodeText(body)
	object, _ := given.(map[string]any)
	if !is || object == nil {
		return nil
	}

	rows, several := value.List(object["tool_calls"])
	if !several {
		rows = []any{object}
	}

	var calls []map[string]any
	for index, row := range rows[:min(len(rows), maxCalls)] {
		raw, _ := value.Object(row)
		function := value.Assoc(raw["function"])
		name := clean(toolName, value.Text(first(function["name"], raw["name"])))
		if name == "" {
			continue
		}

		id := value.Text(raw["id"])
		if id == "" {
			id = fmt.Sprintf("json-tool-call-%d-%d", number, index+1)
		}

		arguments := first(function["arguments"], raw["arguments"], raw["parameters"])
		calls = append(calls, call(name, argumentsOf(arguments), id))
	}

	return calls
}

func callsOfTags(text string) []map[string]any {
	var calls []map[string]any
	for index, match := range namedTagForm.FindAllStringSubmatch(text, maxCalls) {
		name := clean(toolName, match[1])
		if name == "" {
			continue
		}
		parameters, _ := decodeText(match[2])
		calls = append(calls, call(name, value.Assoc(parameters), fmt.Sprintf("tag-tool-call-%d", index+1)))
	}
	return calls
}

// callOfLine reads "name key=value …" when it is the whole text. "Well a=b" becomes a call, too, as in the contract, and
// so does prose before markup with attributes in one line.
func callOfLine(text string) []map[string]any {
	line := value.Trim(text)
	match := lineForm.FindStringSubmatch(line)
	if strings.Contains(line, "\n") || match == nil || clean(toolName, match[1]) == "" {
		return nil
	}

	parameters := map[string]any{}
	for _, pair := range pairForm.FindAllStringSubmatch(match[2], maxParameters) {
		if key := clean(parameterName, pair[1]); key != "" {
			parameters[key] = strings.Trim(pair[2], `"'`)
		}
	}

	if len(parameters) == 0 {
		return nil
	}

	return []map[string]any{call(match[1], parameters, "text-tool-call-1")}
}

func call(name string, parameters map[string]any, id string) map[string]any {
	return map[string]any{"name": name, "parameters": parameters, "id": id}
}

// argumentsOf takes arguments as an object or as the JSON text of one.
func argumentsOf(given any) map[string]any {
	if text, is := given.(string); is {
		given, _ = value.Decode([]byte(text), value.Limits{Bytes: maxTextBytes}) // no JSON is no arguments
	}
	return value.Assoc(given)
}

// decodeText reads JSON out of marked-up text. Entities are decoded first, for models escape what they put in tags; a
// body that is JSON only without that is taken as it is.
func decodeText(text string) (any, bool) {
	text = value.Trim(text)
	limits := value.Limits{Bytes: maxTextBytes}
	given, err := value.Decode([]byte(unescape(text)), limits)
	if err != nil {
		given, err = value.Decode([]byte(text), limits)
	}
	return given, err == nil
}

// unescape decodes entities that end in ";" only: "?a=1&copy=2" is an address.
func unescape(text string) string { return entity.ReplaceAllStringFunc(text, html.UnescapeString) }

func clean(form *regexp.Regexp, name string) string {
	if name = value.Trim(name); form.MatchString(name) {
		return name
	}
	return ""
}

func first(values ...any) any {
	for _, value := range values {
		if value != nil {
			return value
		}
	}
	return nil
}

func withoutRepeats(found []map[string]any) []any {
	calls, seen := []any{}, map[string]bool{}
	for _, call := range found {
		key := value.Text(call["name"]) + "|" + string(tool.Canonical(call["parameters"]))
		if !seen[key] {
			seen[key] = true
			calls = append(calls, call)
		}
	}
	return calls
}
