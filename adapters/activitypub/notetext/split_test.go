package notetext

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/internal/markup"
	"inbox/normalized"
)

func textsOf(posts [][]normalized.Part) (texts []string) {
	for _, post := range posts {
		var all []string
		for _, part := range post {
			all = append(all, part.Content)
		}
		texts = append(texts, strings.Join(all, "|"))
	}
	return texts
}

func TestLongAnswersAreSplit(t *testing.T) {
	code := "```go\n" + strings.Repeat("line\n", 12) + "```"
	cases := []struct {
		name  string
		part  normalized.Part
		limit int
		most  int
		want  []string
	}{
		{"short", normalized.Text("one\n\ntwo"), 20, 5, []string{"one\n\ntwo"}},
		{"between paragraphs", normalized.Text("first paragraph\n\nsecond paragraph"), 20, 5, []string{"<p>first paragraph</p>", "<p>second paragraph</p>"}},
		{"as many as fit", normalized.Text("aaa\n\nbbb\n\nccc dd eeee"), 12, 5, []string{"<p>aaa</p><p>bbb</p>", "<p>ccc dd eeee</p>"}},
		{"between sentences", normalized.Text("One is here. Two is there. Three."), 28, 5, []string{"<p>One is here. Two is there.</p>", "<p>Three.</p>"}},
		{"between words", normalized.Text("alpha beta gamma delta"), 12, 5, []string{"<p>alpha beta</p>", "<p>gamma delta</p>"}},
		{"anywhere", normalized.Text(strings.Repeat("ä", 25)), 10, 5, []string{"<p>ääääääääää</p>", "<p>ääääääääää</p>", "<p>äääää</p>"}},
		{"a block of code keeps its fences", normalized.Markdown("Look:\n\n" + code), 50, 5, []string{
			"<p>Look:</p>", `<pre><code class="language-go">` + strings.Repeat("line\n", 9) + "line</code></pre>", `<pre><code class="language-go">` + strings.Repeat("line\n", 2) + "</code></pre>",
		}},
		{"blank lines inside code", normalized.Markdown("before it\n\n~~~\na\n\nb\n~~~\n\nafter it"), 20, 5, []string{"<p>before it</p><pre><code>a\n\nb\n</code></pre>", "<p>after it</p>"}},
		{"a chain that may not grow", normalized.Text("aaaa\n\nbbbb\n\ncccc"), 5, 2, []string{"<p>aaaa</p>", "<p>bbbb</p><p>cccc</p>"}},
		{"one post that may not grow", normalized.Text("aaaa\n\nbbbb"), 5, 1, []string{"aaaa\n\nbbbb"}},
		{"html", normalized.Part{Kind: normalized.PartText, MIME: normalized.MIMEHTML, Content: "<p>aaa<br>a</p><ul><li>b</li></ul>"}, 4, 5, []string{"<p>aaa<br/>a</p>", "<ul><li>b</li></ul>"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, textsOf(Split([]normalized.Part{c.part}, c.limit, c.most))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestChainIsCutAfterFivePosts(t *testing.T) {
	posts := textsOf(Split([]normalized.Part{normalized.Text(strings.Repeat("word word.\n\n", 30))}, 40, MaxPosts))
	if len(posts) != MaxPosts || !strings.HasSuffix(posts[MaxPosts-1], cutText+"</p>") {
		t.Errorf("%d posts, the last %q", len(posts), posts[len(posts)-1])
	}
}

func wordsOf(posts []string) string {
	words, _ := markup.FromHTML(strings.Join(posts, " ")).Text(markup.Plain, 0)
	return words
}

func TestTextsAfterTheEndOfAChainAreLeftOut(t *testing.T) {
	long := normalized.Text(strings.Repeat("word word.\n\n", 30))
	posts := textsOf(Split([]normalized.Part{long, long, normalized.Text("short")}, 40, MaxPosts))
	if len(posts) != MaxPosts || !strings.HasSuffix(posts[MaxPosts-1], cutText+"</p>") {
		t.Errorf("%d posts, the last %q", len(posts), posts[len(posts)-1])
	}
}

// TestSplitKeepsEveryWord: nothing is lost or doubled, no post of a chain that may still grow is too long, and a chain
// planned once is cut the same way again.
func TestSplitKeepsEveryWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-zäß]{1,12}`), 1, 60).Draw(t, "words")
		separators := rapid.SliceOfN(rapid.SampledFrom([]string{" ", "\n", ". ", "\n\n"}), len(words), len(words)).Draw(t, "separators")
		var text strings.Builder
		for i, word := range words {
			text.WriteString(word + separators[i])
		}
		limit := rapid.IntRange(20, 200).Draw(t, "limit")
		parts := []normalized.Part{normalized.Text(text.String())}
		posts := textsOf(Split(parts, limit, 1000))
		for _, post := range posts {
			if size := markup.FromHTML(post).Size(); size > limit && len(posts) > 1 {
				t.Fatalf("a post of %d characters, limit %d", size, limit)
			}
		}
		clean := func(text string) string { return strings.Join(strings.Fields(text), "") }
		if diff := cmp.Diff(clean(text.String()), clean(wordsOf(posts))); diff != "" {
			t.Fatal(diff)
		}
		if len(posts) < MaxPosts && len(posts) > 1 {
			if diff := cmp.Diff(posts, textsOf(Split(parts, limit, len(posts)))); diff != "" {
				t.Fatalf("planned with %d posts: %s", len(posts), diff)
			}
		}
	})
}

// TestSplitKeepsSourcesWithinTheLimit: sources and the line of tools stand in the last post, as far as they have room there.
func TestSplitKeepsSourcesWithinTheLimit(t *testing.T) {
	cited := func(title string) normalized.Part {
		return normalized.Citation{SourceTitle: title, SourceURL: "https://docs.test/" + title}.Part()
	}
	call := normalized.Part{Kind: normalized.PartToolCall, ID: "c", Name: "search", Error: &normalized.ToolError{Message: "no"}}
	text := func(size int) normalized.Part { return normalized.Text(strings.Repeat("a", size)) }
	tests := map[string]struct {
		parts []normalized.Part
		limit int
		want  []int // tail parts in each post
	}{
		"all in one":           {[]normalized.Part{call, text(20), cited("One"), cited("Two")}, 100, []int{3}},
		"a post of their own":  {[]normalized.Part{call, text(90), cited("One"), cited("Two")}, 100, []int{0, 3}},
		"the tools go first":   {[]normalized.Part{call, text(30), cited("One"), cited("Two")}, 40, []int{0, 2}},
		"then the last source": {[]normalized.Part{call, text(3), cited("One"), cited("Two")}, 20, []int{0, 1}},
		"none has room":        {[]normalized.Part{text(40), cited("One")}, 10, []int{0, 0, 0, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []int
			posts := Split(test.parts, test.limit, MaxPosts)
			for _, post := range posts {
				_, tail := apart(post)
				got = append(got, len(tail))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
			again := Split(test.parts, test.limit, len(posts)) // as a reader gets it, when the posts are counted
			if len(again) != len(posts) {
				t.Errorf("%d posts again, %d planned", len(again), len(posts))
			}
		})
	}
}

func TestTail(t *testing.T) {
	parts := []normalized.Part{
		normalized.Text("hello"),
		{Kind: normalized.PartToolCall, ID: "1", Name: "search", Args: []byte(`{"q":"<b>"}`), Result: []byte(`1`)},
		{Kind: normalized.PartToolCall, ID: "2", Name: "fetch", Error: &normalized.ToolError{Message: "no"}},
		normalized.Citation{SourceTitle: "The <guide>", SourceURL: "https://docs.test/a?b=1&c=2"}.Part(),
		normalized.Citation{SourceTitle: "Wages", AccessStatus: normalized.AccessDenied, RestrictionReason: "workspace"}.Part(),
	}
	const want = `<p>Sources:<br>[1] <a href="https://docs.test/a?b=1&amp;c=2" rel="nofollow noreferrer">The &lt;guide&gt;</a><br>[2] Wages (no access: workspace)</p>` +
		`<p>Tools: search {&#34;q&#34;:&#34;&lt;b&gt;&#34;}, fetch (failed)</p>`
	if got := Tail(parts); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := Tail(parts[:1]); got != "" {
		t.Errorf("without anything: %q", got)
	}
}
