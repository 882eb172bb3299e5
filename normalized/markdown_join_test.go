package normalized

import (
	"fmt"
	"strings"
	"testing"
)

func TestTextsInMarkdownEndWhereTheyEnd(t *testing.T) {
	for first, closed := range map[string]string{
		"a\n```go\nb": "a\n```go\nb\n```", "```\na\n```": "```\na\n```", "````\na\n```": "````\na\n```\n````", "~~~ x\na": "~~~ x\na\n~~~",
		"``` a`b\nc": "``` a`b\nc", "    ```\na": "    ```\na", "1. x\n   ```\n   a": "1. x\n   ```\n   a\n   ```", "1. x\n   ```\na": "1. x\n   ```\na",
		"- ~~~\n  a\n\n  b": "- ~~~\n  a\n\n  b\n  ~~~", "> ```\n> a": "> ```\n> a", "a <!-- b": "a <!-- b", "<!-- a": "<!-- a\n-->", "<!-- a\n\n-->": "<!-- a\n\n-->",
		"<pre>\na": "<pre>\na\n</pre>", "<PREFIX>\na": "<PREFIX>\na", "<pre>a</pre>": "<pre>a</pre>", "```\n<!--\n```": "```\n<!--\n```",
	} {
		if got, want := JoinMarkdown([]string{first, "second"}), closed+"\n\nsecond"; got != want {
			t.Errorf("%q: %q, want %q", first, got, want)
		}
	}
	for _, one := range [][3]string{{"1. a", "1. b", "1. a\n\n<!-- -->\n\n1. b"}, {"- a\n\n  b", "    code", "- a\n\n  b\n\n<!-- -->\n\n    code"}, {"- a", "b", "- a\n\nb"}} {
		if got := JoinMarkdown(one[:2]); got != one[2] {
			t.Errorf("%q and %q: %q, want %q", one[0], one[1], got, one[2])
		}
	}
}

// TestAnswersOfManyTextsKeepTheirEnds: texts that are joined because there are too many leave nothing open for the next.
func TestAnswersOfManyTextsKeepTheirEnds(t *testing.T) {
	var parts []Part
	for i := range 40 {
		parts = append(parts, Markdown(fmt.Sprintf("```\ncode %d", i)), Markdown(fmt.Sprintf("**text %d**", i)))
	}
	fitted := Response{Parts: parts}.Fit(Limits{}, Left{})
	text := MarkdownText(fitted.Parts)
	if strings.Count(text, "```\n\n**text") != 40 || len(fitted.Parts) >= len(parts) {
		t.Errorf("%d parts say\n%s", len(fitted.Parts), text)
	}
	for _, part := range joinTexts([]Part{Markdown("```\na"), Markdown("```\nb"), Markdown("```\nc")}, 35) {
		if len(part.Content) > 35 {
			t.Errorf("%d bytes: %q", len(part.Content), part.Content)
		}
	}
}
