package loop

import (
	"maps"
	"regexp"
	"strconv"
	"strings"

	"inbox/agents/runtime/envelope"
)

// Types of the items of a Markdown document (agent runtime contract, section 3.9).
const (
	MarkdownPreamble       = "markdown_preamble"
	MarkdownSection        = "markdown_section"
	MarkdownSectionSummary = "markdown_section_summary"
	MarkdownSectionPointer = "markdown_section_pointer"
)

const preambleKey = "__preamble"

// ParseMarkdown cuts a document into compaction items: the text before the first heading, then one item for each
// heading with the text below it. JoinMarkdown gives the same bytes back. It knows "#" headings only, also inside of
// code.
func ParseMarkdown(markdown string) []map[string]any {
	var items []map[string]any
	var path []string
	seen := map[string]int{}
	var content strings.Builder
	current := markdownItem(MarkdownPreamble, preambleKey, nil, heading{})
	finish := func() {
		current["content"] = content.String()
		content.Reset()
		envelope.Assoc(current["metadata"])["order"] = len(items)
		items = append(items, current)
	}
	for line := range lines(markdown) {
		head, is := headingOf(line)
		if !is {
			content.WriteString(line)
			continue
		}
		finish()
		path = append(path[:min(len(path), head.level-1):min(len(path), head.level-1)], head.text)
		key := headingKey(path)
		if seen[key]++; seen[key] > 1 {
			key += "-" + strconv.Itoa(seen[key])
		}
		current = markdownItem(MarkdownSection, key, path, head)
	}
	finish()
	return items
}

type heading struct {
	level int
	text  string
	line  string
}

func markdownItem(kind, key string, path []string, head heading) map[string]any {
	id, outer := preambleKey, preambleKey
	if kind != MarkdownPreamble {
		id, outer = "section:"+key, headingKey(path[:1])
	}
	return withItemSchema(map[string]any{
		"id": id, "type": kind, "content": "",
		"metadata": map[string]any{
			"heading_path": texts(path), "heading_key": key, "heading_level": head.level, "heading_text": head.text,
			"heading_line": head.line, "boundary_heading_key": outer,
		},
	})
}

// lines gives the lines of a text with their ends: \n, \r\n or \r.
func lines(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for text != "" {
			end := strings.IndexAny(text, "\r\n") + 1
			switch {
			case end == 0:
				end = len(text)
			case text[end-1] == '\r' && end < len(text) && text[end] == '\n':
				end++
			}
			if !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
}

var (
	headingForm  = regexp.MustCompile(`^(#{1,6})(?:[ \t]+(.*))?[ \t]*$`)
	closingMarks = regexp.MustCompile(`[ \t]+#+[ \t]*$`)
	notOfKey     = regexp.MustCompile(`[^a-z0-9]+`)
)

func headingOf(line string) (heading, bool) {
	match := headingForm.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
	if match == nil {
		return heading{}, false
	}
	text := strings.TrimSpace(closingMarks.ReplaceAllString(match[2], ""))
	return heading{level: len(match[1]), text: text, line: line}, true
}

func headingKey(path []string) string {
	keys := make([]string, len(path))
	for i, text := range path {
		keys[i] = strings.Trim(notOfKey.ReplaceAllString(strings.ToLower(text), "-"), "-")
		if keys[i] == "" {
			keys[i] = "untitled"
		}
	}
	return strings.Join(keys, "/")
}

// JoinMarkdown writes the document of items. Errors have the code invalid_markdown_section_item.
func JoinMarkdown(items []map[string]any) (string, error) {
	var markdown strings.Builder
	for _, item := range items {
		switch kind := envelope.Text(item["type"]); kind {
		case MarkdownPreamble:
		case MarkdownSection, MarkdownSectionSummary, MarkdownSectionPointer:
			line := envelope.Text(envelope.Assoc(item["metadata"])["heading_line"])
			if line == "" {
				return "", invalid(codeMarkdownItem, "", "section item missing heading line")
			}
			markdown.WriteString(line)
		default:
			return "", invalid(codeMarkdownItem, "", "unsupported item type")
		}
		markdown.WriteString(envelope.Text(item["content"]))
	}
	return markdown.String(), nil
}

// SummarizedSection replaces the text below a heading by a summary.
func SummarizedSection(section map[string]any, summary string) (map[string]any, error) {
	return replacedSection(section, MarkdownSectionSummary, summary, "source_item_type", section["type"])
}

// ArchivedSection replaces the text below a heading by a pointer to where it went.
func ArchivedSection(section map[string]any, destination string) (map[string]any, error) {
	if destination = envelope.Trim(destination); destination == "" {
		return nil, invalid(codeMarkdownPointer, "", "destination must be non-empty")
	}
	text := "[Archived section: " + destination + "]\n"
	return replacedSection(section, MarkdownSectionPointer, text, "pointer_destination", destination)
}

func replacedSection(section map[string]any, kind, content, member string, value any) (map[string]any, error) {
	metadata := maps.Clone(envelope.Assoc(section["metadata"]))
	_, headed := envelope.NonBlank(metadata["heading_line"])
	switch {
	case section["type"] == MarkdownPreamble:
		return nil, invalid(codeMarkdownItem, "", "preamble cannot be replaced as a section")
	case !headed:
		return nil, invalid(codeMarkdownItem, "", "section item missing heading line")
	}
	metadata["source_item_id"], metadata[member] = section["id"], value
	id := textOr(section["id"], "section") + ":" + strings.TrimPrefix(kind, "markdown_section_")
	return withItemSchema(map[string]any{"id": id, "type": kind, "content": content, "metadata": metadata}), nil
}
