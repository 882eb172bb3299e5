package handbook

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

// documents are those of the tree.
var documents = NewDocuments(os.DirFS("../.."))

func serve(t *testing.T, address string) (int, string) {
	t.Helper()
	router := chi.NewRouter()
	for _, route := range New("inbox.test", documents).Routes() {
		router.Method(route.Method, route.Pattern, route.Handler)
	}
	recorder := httptest.NewRecorder()
	router.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, address, nil))
	return recorder.Code, recorder.Body.String()
}

var (
	addresses = regexp.MustCompile(`href="([^"]*)"`)
	ids       = regexp.MustCompile(`id="([^"]*)"`)
)

// TestLinks follows every link of every document: all lead to a heading or a document that is there, and none to nowhere.
func TestLinks(t *testing.T) {
	all, err := documents.library()
	if err != nil {
		t.Fatal(err)
	}
	if len(all.pages) < 30 || all.pages["quickstart"] == nil || all.pages["agents/llm"] == nil {
		t.Fatalf("there are %d documents", len(all.pages))
	}

	fragments := map[string]map[string]bool{}
	for path, one := range all.pages {
		fragments[path] = map[string]bool{"": true}
		for _, id := range ids.FindAllStringSubmatch(one.html, -1) {
			if fragments[path][id[1]] {
				t.Errorf("%s has two headings with the fragment %q", path, id[1])
			}
			fragments[path][id[1]] = true
		}
	}
	for path, one := range all.pages {
		if one.title == "" || !strings.Contains(one.html, "<h1") {
			t.Errorf("%s has no title", path)
		}
		for _, link := range addresses.FindAllStringSubmatch(one.html, -1) {
			target, fragment, _ := strings.Cut(link[1], "#")
			switch {
			case link[1] == "":
				t.Errorf("%s has a link to nowhere", path)
			case target == "":
				target = path
			case strings.HasPrefix(target, Root):
				target = strings.TrimPrefix(strings.TrimPrefix(target, Root), "/")
			default:
				continue
			}
			if !fragments[target][fragment] {
				t.Errorf("%s links to %s, which is not there", path, link[1])
			}
		}
		if strings.Contains(one.html, "<img") || strings.Contains(one.html, "<!--") {
			t.Errorf("%s shows a picture, or what it hides", path)
		}
	}
}

func TestPagesAreServed(t *testing.T) {
	for _, c := range []struct {
		address string
		status  int
		words   []string
	}{
		{"/docs/quickstart", 200, []string{`<article class="prose document">`, "All documents", "Search the documents"}},
		{"/docs/agents/llm", 200, []string{"<pre tabindex"}},
		{"/docs/configuration", 200, []string{`<div class="scroll" tabindex="0"`}},
		{"/docs/nothing", 404, []string{"There is no such document"}},
		{"/docs/%3Cscript%3E", 404, []string{"&lt;script&gt;"}},
		{"/docs/../http.go", 404, nil},
		{"/docs/search?q=dmarc+quarantine", 200, []string{"<mark>", `href="/docs/`}},
		{"/docs/search?q=zzyzx", 200, []string{"Nothing found"}},
		{"/docs/search?q=", 200, []string{"Nothing found"}},
		{"/docs/search?q=%22%3E%3Cscript%3E", 200, []string{"&#34;&gt;&lt;script&gt;"}},
	} {
		status, body := serve(t, c.address)
		if status != c.status {
			t.Errorf("%s: %d, want %d", c.address, status, c.status)
		}
		for _, words := range c.words {
			if !strings.Contains(body, words) {
				t.Errorf("%s has no %q", c.address, words)
			}
		}
		if strings.Contains(body, "<script>") {
			t.Errorf("%s has a script of the reader", c.address)
		}
	}
}

func TestSearch(t *testing.T) {
	all, err := newLibrary(map[string]string{
		"docs/README.md": "# Documents\n\nRead [one](one.md) or [the code](../http.go).\n",
		"docs/one.md":    "# One\n\nÀ propos of leases.\n\n## A lease ends\n\n`inbox show` names it. See ![a picture](x.png).\n\n```sh\ninbox retry\n```\n",
		"docs/two.md":    "# Leases\n\nWhat a node holds.\n\n## A lease ends\n\n## A lease ends\n\n| a | b |\n|---|--:|\n| lease | 1 |\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if html := all.pages[""].html; !strings.Contains(html, `<a href="/docs/one">one</a> or the code.`) {
		t.Errorf("the index is %s", html)
	}

	for query, wanted := range map[string][]string{
		"lease":                  {"/docs/two#a-lease-ends", "/docs/two#a-lease-ends-1", "/docs/one#a-lease-ends", "/docs/two#leases", "/docs/one#one"},
		"LEASE ends":             {"/docs/two#a-lease-ends-1", "/docs/two#a-lease-ends", "/docs/one#a-lease-ends"},
		"inbox retry":            {"/docs/one#a-lease-ends"},
		"picture":                {"/docs/one#a-lease-ends"},
		"à":                      {"/docs/one#one"},
		"lease nothing":          nil,
		"":                       nil,
		"\xff\xfe ? !":           nil,
		strings.Repeat("x", 300): nil,
	} {
		var got []string
		for _, one := range all.search(query) {
			got = append(got, one.Address)
		}
		if query == "lease" { // of equal weight
			slices.Sort(got)
			slices.Sort(wanted)
		}
		if !slices.Equal(got, wanted) {
			t.Errorf("%q finds %q, want %q", query, got, wanted)
		}
	}
}

func FuzzSearch(f *testing.F) {
	for _, query := range []string{"lease", "İ", "ſ K", "\xff", "a b c d e f g h i j"} {
		f.Add(query, "Text with İstanbul, ſ and \xff")
	}
	f.Fuzz(func(t *testing.T, query, text string) {
		all, err := newLibrary(map[string]string{"docs/one.md": "# One\n\n" + text})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all.search(query) {
			var whole strings.Builder
			for _, piece := range one.Excerpt {
				whole.WriteString(piece.Text)
			}
			if !strings.Contains(all.sections[0].text+"\x00"+all.sections[len(all.sections)-1].text, whole.String()) && len(all.sections) < 3 {
				t.Errorf("the excerpt %q is not of the text", whole.String())
			}
		}
	})
}

func BenchmarkSearch(b *testing.B) {
	all, err := documents.library()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		all.search("the a e i o inbox mail agent")
	}
}
