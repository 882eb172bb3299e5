package activitypub

import (
	"strings"
	"testing"
)

// TestMentionsAreWholeAddresses: nothing in code, in a link or in a longer address is a mention.
func TestMentionsAreWholeAddresses(t *testing.T) {
	ann := person{Address: "@ann@a.example", Actor: "https://a.example/users/ann"}
	for content, want := range map[string]bool{
		"<p>hello @ann@a.example</p>": true, "<p>@Ann@A.example, yes</p>": true, "<p>(@ann@a.example).</p>": true, "<p>@ann@a.example.</p>": true,
		"<p>@ann@a.example.evil.test</p>": false, "<p>@ann@a.example-x.test</p>": false, "<p>@ann@a.examples</p>": false, "<p>x@ann@a.example</p>": false,
		"<p>https://b.example/@ann@a.example</p>": false, "<p><code>@ann@a.example</code></p>": false, "<pre><code>to @ann@a.example</code></pre>": false,
		"<p><a href=\"https://x.example\">@ann@a.example</a></p>": false, "<p>@ann@a.example.evil.test or @ann@a.example</p>": true,
		"<p><code>@ann@a.example</code> @ann@a.example</p>": true, "<p>İ @ann@a.example</p>": true, "<p>@ann@a.exampleü</p>": false, "<p>@ann@a.example:8443</p>": false,
	} {
		linked, missing := linkMentions(content, []person{ann})
		if got := len(missing) == 0; got != want || got != strings.Contains(linked, ann.anchor()) || strings.Count(linked, ann.anchor()) > 1 {
			t.Errorf("%s: %s", content, linked)
		}
	}
}
