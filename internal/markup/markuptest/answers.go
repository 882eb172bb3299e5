package markuptest

import (
	"embed"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/internal/markup"
)

// Answer is a text as an agent sends it.
type Answer struct {
	MIME, Content string

	Words   string // what a reader sees, without marks of lists and tables; empty = it is not known
	Address string // where it leads; empty = nowhere, or it is not known
}

//go:embed testdata/answers
var answers embed.FS

// snippet is what answers have in their lines, what readers see of it, and where it leads. It has no bar and no line break, so that it fits
// into every place.
type snippet struct{ source, words, address string }

var snippets = []snippet{
	{"plain words", "plain words", ""}, {"**bold** and *slanted*", "bold and slanted", ""}, {"***both*** of them", "both of them", ""}, {"~~old~~ new", "old new", ""},
	{"`code`", "code", ""}, {"`vector<int>`", "vector<int>", ""}, {"vector<int>", "vector<int>", ""}, {"map<string, list<T>>", "map<string, list<T>>", ""},
	{"Press <Enter>", "Press <Enter>", ""}, {"Dear <name>", "Dear <name>", ""}, {"Vec<Option<&str>>", "Vec<Option<&str>>", ""}, {"x < y > z", "x < y > z", ""},
	{"i<3 & <3", "i<3 & <3", ""}, {"2*3*4", "2*3*4", ""}, {"a * b * c", "a * b * c", ""}, {"snake_case_name", "snake_case_name", ""}, {"\\*escaped\\*", "*escaped*", ""},
	{"&amp; &lt;b&gt; &copy;", "& <b> ©", ""}, {"AT&T", "AT&T", ""}, {"https://x.example/?a=1&b=2", "https://x.example/?a=1&b=2", "https://x.example/?a=1&b=2"},
	{"https://x.example/a_b_", "https://x.example/a_b_", "https://x.example/a_b_"}, {"https://x.example/~ann/~", "https://x.example/~ann/~", "https://x.example/~ann/~"},
	{"https://x.example/wiki/A_(b)", "https://x.example/wiki/A_(b)", "https://x.example/wiki/A_(b)"}, {"(https://x.example/in)", "(https://x.example/in)", "https://x.example/in"},
	{"<https://x.example/-_>", "https://x.example/-_", "https://x.example/-_"}, {"[words](https://x.example/p?q=1&r=2)", "words", "https://x.example/p?q=1&r=2"},
	{"[*marked*](https://x.example/m)", "marked", "https://x.example/m"}, {"[b \\[x\\]](<https://x.example/a (b)>)", "b [x]", "https://x.example/a (b)"},
	{"[100 %](https://x.example/100%)", "100 %", "https://x.example/100%"}, {"[Ann](mailto:ann@a.example)", "Ann", "mailto:ann@a.example"},
	{"ann@a.example", "ann@a.example", "mailto:ann@a.example"}, {"[call](tel:+15550100)", "call (tel:+15550100)", ""}, {"[here](/docs/a)", "here (/docs/a)", ""},
	{"[bad](javascript:x)", "bad", ""}, {"[top](#top)", "top", ""}, {"![a chart](https://img.example/c)", "a chart", "https://img.example/c"},
	{"[x](https://x.example/letter)", "x", "https://x.example/letter"}, {"![](chart.png)", "chart.png", ""},
	{"[https://x.example/_a_](https://x.example/_a_)", "https://x.example/_a_", "https://x.example/_a_"}, {"if a<b and c>d, <b>so</b>", "if a<b and c>d, so", ""},
	{"![](https://img.example/d)", "https://img.example/d", "https://img.example/d"}, {"![chart](chart.png)", "chart (chart.png)", ""},
	{"[![badge](https://img.example/b)](https://ci.example/x)", "badge", "https://ci.example/x"}, {"<b>bold</b> H<sub>2</sub>O", "bold H2O", ""},
	{"<kbd>Ctrl</kbd>", "Ctrl", ""}, {"a<br>b", "a b", ""}, {"<span title=\"x\">span</span>", "span", ""}, {"`` a`b ``", "a`b", ""},
	{"مرحبا **بالعالم**", "مرحبا بالعالم", ""}, {"שלום https://x.example/ש", "שלום https://x.example/ש", "https://x.example/ש"},
	{"👩‍👩‍👧‍👦👍🏽🇩🇪", "👩‍👩‍👧‍👦👍🏽🇩🇪", ""}, {"กำลังเขียน", "กำลังเขียน", ""}, {"日本語の**太字**です。", "日本語の太字です。", ""}, {"e\u0301a\u0308", "e\u0301a\u0308", ""},
	{"$a_1 * b_2$", "$a_1 * b_2$", ""}, {"C:\\temp\\new", "C:\\temp\\new", ""}, {"--flag -x", "--flag -x", ""}, {"@ann@a.example", "@ann@a.example", ""}, {"#tag", "#tag", ""},
	{"<!-- note -->seen", "seen", ""}, {"<script>alert(1)</script>", "<script>alert(1)</script>", ""},
	{"http://[2001:db8::1]:8080/a", "http://[2001:db8::1]:8080/a", "http://[2001:db8::1]:8080/a"},
	{"https://xn--bcher-kva.example:8443/#f", "https://xn--bcher-kva.example:8443/#f", "https://xn--bcher-kva.example:8443/#f"},
	{"HTTPS://X.example/A", "HTTPS://X.example/A", "https://X.example/A"}, {"see https://x.example/a, then.", "see https://x.example/a, then.", "https://x.example/a"},
}

// places are where a snippet stands, and the words around it.
var places = [][2]string{
	{"%", "%"}, {"Before % after.", "Before % after."}, {"- one\n- %\n- three", "one % three"}, {"1. a\n   - %\n\n2. b", "a % b"}, {"> %\n> more", "% more"},
	{"## %\n\ntext", "% text"}, {"| a | b |\n|---|---|\n| x | % |\n| % | y |", "a b x % % y"},
}

// Answers returns texts as models write them: those that were written by hand, and each snippet at each place.
func Answers(t testing.TB) (list []Answer) {
	t.Helper()
	files, err := answers.ReadDir("testdata/answers")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := answers.ReadFile("testdata/answers/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		mime := map[string]string{".md": "text/markdown", ".html": "text/html", ".txt": "text/plain"}[filepath.Ext(file.Name())]
		for one := range strings.SplitSeq(string(content), "\n%%%\n") {
			list = append(list, Answer{MIME: mime, Content: one})
		}
	}
	for _, place := range places {
		for _, one := range snippets {
			list = append(list, Answer{"text/markdown", strings.ReplaceAll(place[0], "%", one.source), strings.ReplaceAll(place[1], "%", one.words), one.address})
		}
	}
	return list
}

// CommonMark returns the examples of the specification. They are read from goldmark's module: their licence (CC BY-SA 4.0) is not ours.
func CommonMark(t testing.TB) (list []Answer) {
	t.Helper()
	directory, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yuin/goldmark").Output()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(directory)), "_test", "spec.json"))
	if err != nil {
		t.Fatal(err)
	}
	var examples []struct{ Markdown string }
	if err := json.Unmarshal(content, &examples); err != nil || len(examples) < 600 {
		t.Fatal(len(examples), err)
	}
	for _, one := range examples {
		list = append(list, Answer{MIME: "text/markdown", Content: one.Markdown})
	}
	return list
}

// lineParts are the elements whose words belong to the line around them.
var lineParts = []atom.Atom{
	atom.A, atom.B, atom.Strong, atom.I, atom.Em, atom.U, atom.S, atom.Del, atom.Ins, atom.Mark, atom.Code, atom.Kbd, atom.Samp, atom.Tt, atom.Sub, atom.Sup,
	atom.Small, atom.Span, atom.Q, atom.Cite, atom.Abbr, atom.Ruby, atom.Rt, atom.Rp, atom.Wbr, atom.Strike,
}

// Read returns the words that a browser shows of HTML, with one blank between them, and the addresses of its links. It shares no code
// with package markup.
func Read(t testing.TB, content string) (words string, addresses []string) {
	t.Helper()
	body, err := html.ParseFragment(strings.NewReader(content), &html.Node{Type: html.ElementNode, Data: "body", DataAtom: atom.Body})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var read func(*html.Node)
	read = func(node *html.Node) {
		if node.Type == html.TextNode {
			out.WriteString(node.Data)
		}
		apart := node.Type == html.ElementNode && !slices.Contains(lineParts, node.DataAtom)
		for _, one := range node.Attr {
			if node.DataAtom == atom.A && one.Key == "href" {
				addresses = append(addresses, one.Val)
			}
		}
		if apart {
			out.WriteByte(' ')
		}
		for child := range node.ChildNodes() {
			read(child)
		}
		if apart {
			out.WriteByte(' ')
		}
	}
	for _, node := range body {
		read(node)
	}
	return strings.Join(strings.Fields(out.String()), " "), addresses
}

// SameOn fails where a page shows other words or other addresses of an answer than its document has. An address that the page does not
// link is among its words.
func SameOn(t *testing.T, form func(Answer) string) {
	t.Helper()
	for _, one := range slices.Concat(Answers(t), CommonMark(t)) {
		want, addresses := Read(t, markup.From(one.MIME, one.Content).HTML(markup.Page{Sanitize: func(content string) string { return content }}))
		if one.Words != "" && (want != one.Words || one.Address != "" && !slices.ContainsFunc(addresses, func(to string) bool { return decoded(t, to) == decoded(t, one.Address) })) {
			t.Errorf("%s\nsays %q and leads to %q", one.Content, want, addresses)
		}
		content := form(one)
		got, led := Read(t, content)
		for _, address := range addresses {
			mailbox, mail := strings.CutPrefix(address, "mailto:")
			switch {
			case slices.ContainsFunc(led, func(one string) bool { return decoded(t, one) == decoded(t, address) }):
			case mail && strings.Contains(got, mailbox):
				got = strings.Replace(got, " ("+mailbox+")", "", 1)
			default:
				t.Errorf("%s\ndoes not lead to %s but to %q\n%s", one.Content, address, led, content)
			}
		}
		if got = Bare(got); got != Bare(want) {
			t.Errorf("%s\nshows\n%s\nwant\n%s\nHTML:\n%s", one.Content, got, Bare(want), content)
		}
	}
}

// addressBehind is how plain text shows where the words before it lead.
var addressBehind = regexp.MustCompile(`\s*<(?:https?://[^\s<>]+|[^\s<>@]+@[^\s<>]+)>`)

// structure is what plain text has for quotations, items, rows and rules.
var structure = regexp.MustCompile(`^(?:>+|-|[0-9]+\.|\||\*)$`)

// SameTextOn fails where plain text has other words than the document of an answer, or lacks an address. Alike writes words as the text does.
func SameTextOn(t *testing.T, alike func(words string) string, form func(Answer) string) {
	t.Helper()
	for _, one := range slices.Concat(Answers(t), CommonMark(t)) {
		want, addresses := Read(t, markup.From(one.MIME, one.Content).HTML(markup.Page{Sanitize: func(content string) string { return content }}))
		text := form(one)
		for _, address := range addresses {
			shown := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(address, "mailto:"), "https://"), "http://"), "/")
			if !strings.Contains(decoded(t, text), decoded(t, alike(shown))) {
				t.Errorf("%s\ndoes not lead to %s:\n%s", one.Content, address, text)
			}
		}

		said := addressBehind.ReplaceAllStringFunc(text, func(address string) string {
			switch bare := strings.Trim(strings.TrimSpace(address), "<>"); {
			case strings.Contains(want, "<"+bare+">"):
				return address
			case strings.Contains(want, bare): // a picture without words
				return " " + bare
			}
			return ""
		})
		words := strings.Fields(strings.ReplaceAll(alike(want), "~~", ""))
		for word := range strings.FieldsSeq(strings.ReplaceAll(said, "~~", "")) {
			if len(words) > 0 && word == words[0] {
				words = words[1:]
			} else if !structure.MatchString(word) && !slices.ContainsFunc(addresses, func(one string) bool { return one == word || strings.EqualFold(one, "mailto:"+word) }) {
				t.Errorf("%s\nsays\n%s\nwant, from %q,\n%s", one.Content, text, word, want)
				words = nil
				break
			}
		}
		if len(words) > 0 {
			t.Errorf("%s\nsays\n%s\nand lacks %q", one.Content, text, words)
		}
	}
}

func decoded(t testing.TB, address string) string {
	t.Helper()
	text, err := url.PathUnescape(address)
	if err != nil {
		return address
	}
	return text
}

// Bare leaves out what some forms have for structure: bars between cells and rules.
func Bare(words string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("|", " ", "* * *", " ").Replace(words)), " ")
}
