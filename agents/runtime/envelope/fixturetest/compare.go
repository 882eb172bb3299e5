package fixturetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"inbox/agents/runtime/value"
)

// masks are the generated values of a record and the form that each must have.
var masks = map[string]string{
	"<timestamp>":  `\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?`,
	"<run-id>":     `.+`,
	"<session-id>": `.+`,
	"<queue-id>":   `.+`,
	"<archive-id>": `.+`,
	"<exception>":  `.+`,
	"<code>":       `.*`,
	"<excerpt>":    `.*`,
}

var mask = regexp.MustCompile(`<(?:timestamp|run-id|session-id|queue-id|archive-id|exception|code|excerpt)>`)

const runMessage = "<run-id>-message"

// comparison collects the differences of one case and the run ids that its masks took.
type comparison struct {
	differences []string
	runs        []string // values of <run-id>
	extended    []string // beginnings of <run-id>-message
}

// Compare returns one line per difference between a recorded value and what we made, by the rules of the README beside
// the records. No line means that they are equal.
func Compare(expected, actual any) []string {
	c := &comparison{}
	c.value("$", decoded(expected), decoded(actual))
	for _, run := range c.extended {
		if len(c.runs) > 0 && !slices.Contains(c.runs, run) {
			c.differ("$", runMessage, run+"-message extends no run id of the case")
		}
	}
	return c.differences
}

// decoded brings Go values into the types of decoded JSON.
func decoded(given any) any {
	data, err := value.Encode(given)
	if err != nil {
		return fmt.Sprintf("no JSON: %v", err)
	}
	plain, err := value.Decode(data, recorded)
	if err != nil {
		return fmt.Sprintf("no JSON: %v", err)
	}
	return plain
}

func (c *comparison) differ(path string, expected, actual any) {
	c.differences = append(c.differences, fmt.Sprintf("%s: want %s, got %s", path, show(expected), show(actual)))
}

func show(given any) string {
	text := value.EncodeText(given)
	if len(text) > 400 {
		text = strings.ToValidUTF8(text[:400], "") + "…"
	}
	return text
}

func (c *comparison) value(path string, expected, actual any) {
	switch want := expected.(type) {
	case map[string]any:
		got, is := value.Object(actual)
		if !is {
			if list, listed := value.List(actual); !listed || len(list)+len(want) > 0 {
				c.differ(path, expected, actual)
			}
			return
		}
		c.object(path, want, got)
	case []any:
		c.list(path, want, actual)
	case string:
		c.text(path, want, actual)
	default:
		if !value.Equal(expected, actual) {
			c.differ(path, expected, actual)
		}
	}
}

func (c *comparison) list(path string, want []any, actual any) {
	got, is := value.List(actual)
	if !is || len(got) != len(want) {
		c.differ(path, want, actual)
		return
	}
	for i := range want {
		c.value(fmt.Sprintf("%s[%d]", path, i), want[i], got[i])
	}
}

func (c *comparison) object(path string, want, got map[string]any) {
	if told, is := failure(want); is {
		if made, failed := failure(got); failed {
			c.failure(path+".error", told, made)
			return
		}
	}

	for _, key := range slices.Sorted(maps.Keys(want)) {
		inside := path + "." + key
		member, there := got[key]
		switch {
		case !there:
			c.differences = append(c.differences, fmt.Sprintf("%s: missing, want %s", inside, show(want[key])))
		case key == "content" && toolResult(want):
			c.content(inside, want[key], member)
		default:
			c.value(inside, want[key], member)
			c.excerpt(inside, want, key, member)
		}
	}

	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, there := want[key]; !there {
			c.differences = append(c.differences, fmt.Sprintf("%s.%s: unexpected, got %s", path, key, show(got[key])))
		}
	}
}

// failure finds the object of a record that stands for an error and nothing else.
func failure(object map[string]any) (map[string]any, bool) {
	inner, is := object["error"].(map[string]any)
	_, coded := inner["code"].(string)
	return inner, is && coded && len(object) == 1
}

// failure compares errors: the code always, path and fields where the record has them, the message never.
func (c *comparison) failure(path string, want, got map[string]any) {
	for _, key := range []string{"code", "path", "fields"} {
		if _, there := want[key]; there {
			c.value(path+"."+key, want[key], got[key])
		}
	}
}

func toolResult(message map[string]any) bool {
	metadata, _ := message["metadata"].(map[string]any)
	return message["type"] == "tool_result" || metadata["type"] == "tool_result"
}

// content compares JSON inside of a string by its value.
func (c *comparison) content(path string, expected, actual any) {
	want, wanted := container(expected)
	got, gotten := container(actual)
	if wanted && gotten {
		c.value(path+"(JSON)", want, got)
		return
	}
	c.value(path, expected, actual)
}

func container(given any) (any, bool) {
	text, is := given.(string)
	if !is {
		return nil, false
	}
	inner, err := value.Decode([]byte(text), recorded)
	return inner, err == nil && value.Container(inner)
}

func (c *comparison) text(path, want string, actual any) {
	got, is := actual.(string)
	switch {
	case !is:
		c.differ(path, want, actual)
	case want == runMessage && strings.HasSuffix(got, "-message") && len(got) > len("-message"):
		c.extended = append(c.extended, strings.TrimSuffix(got, "-message"))
	case !mask.MatchString(want):
		if got != want {
			c.differ(path, want, actual)
		}
	case !pattern(want).MatchString(got):
		c.differ(path, want, actual)
	case want == "<run-id>":
		c.runs = append(c.runs, got)
	}
}

// pattern makes an expression of a recorded text: masks by their form, the rest literally.
func pattern(want string) *regexp.Regexp {
	var expression strings.Builder
	expression.WriteString(`(?s)\A`)
	last := 0
	for _, at := range mask.FindAllStringIndex(want, -1) {
		expression.WriteString(regexp.QuoteMeta(want[last:at[0]]))
		expression.WriteString(masks[want[at[0]:at[1]]])
		last = at[1]
	}

	expression.WriteString(regexp.QuoteMeta(want[last:]) + `\z`)
	return regexp.MustCompile(expression.String())
}

// excerpt checks that an excerpt is no longer than its neighbour says.
func (c *comparison) excerpt(path string, want map[string]any, key string, actual any) {
	if want[key] != "<excerpt>" {
		return
	}
	number, is := want["excerpt_bytes"].(json.Number)
	limit, err := number.Int64()
	if got := value.Text(actual); is && err == nil && int64(len(got)) > limit {
		c.differ(path, fmt.Sprintf("at most %d bytes", limit), fmt.Sprintf("%d bytes", len(got)))
	}
}
