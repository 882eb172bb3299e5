package markup

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
	"pgregory.net/rapid"
)

func rendered(t interface{ Fatal(...any) }, document *html.Node) string {
	var out strings.Builder
	if err := html.Render(&out, document); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestTreesAreThoseOfBrowsers compares with golang.org/x/net/html, which follows the specification.
func TestTreesAreThoseOfBrowsers(t *testing.T) {
	for _, source := range []string{
		"<p>a<p>b<b>c", "<b>a<p>b</b>c</p>d", "<b>1<i>2<p>3</b>4</i>5</p>6", "<a href=x>1<a href=y>2</a>3", "<p><b>x</p><p>y</b>z",
		"<ul><li>a<li>b<ul><li>c</ul><li>d</ul>e", "<dl><dt>a<dd>b<dt>c</dl>", "<table><tr><td>a<td>b<tr><th>c</table>d",
		"<table>x<tr>y<td>z</td>w</tr></table>", "<table><b>x<tr><td>y</table>z", "<!DOCTYPE html><p>a<table><td>b</table>c", "<p>a<table><td>b</table>c",
		"<h1>a<h2>b</h1>c", "<div><span>a</div>b</span>c", "<button>a<button>b", "<form>a<form>b</form>c</form>d", "a</p>b</br>c",
		"<pre>\n\na</pre>", "<textarea>\n<b>a</textarea>b", "<select><option>a<option>b</select>c", "<ruby>a<rt>b<rt>c</ruby>d",
		"<font color=red><p>a</font>b<p>c", "<b><b><b><b>x</b></b></b></b>y<p>z", "<b><b><b><b><p>x", "<object><b>a</object>b", "<div><b><i><u><s><p>x</b>y",
		"<a><table><td><a>x</a></table>y", "<nobr>a<nobr>b", "<li>a<li>b", "<table><caption>a<tr><td>b", "<table><col><tr><td>a", "&lt;b&gt; &amp &#65;&nbsp;x",
	} {
		want, err := html.Parse(strings.NewReader(strings.TrimPrefix(source, "<!DOCTYPE html>")))
		if strings.HasPrefix(source, "<!DOCTYPE") {
			want, err = html.Parse(strings.NewReader(source))
			want.RemoveChild(want.FirstChild)
		}
		if err != nil {
			t.Fatal(err)
		}
		document, cut := Parse(source, Limits{})
		if got := rendered(t, document); got != rendered(t, want) || cut {
			t.Errorf("%s:\n got %s\nwant %s", source, got, rendered(t, want))
		}
	}
}

// TestWellFormedTrees: what is nested properly is read as browsers read it.
func TestWellFormedTrees(t *testing.T) {
	blocks := []string{"div", "blockquote", "section", "ul", "article"}
	inline := []string{"b", "i", "span", "em", "code", "u", "del"}
	rapid.Check(t, func(t *rapid.T) {
		var out strings.Builder
		budget := rapid.IntRange(1, 60).Draw(t, "size")
		var write func(depth int, inside bool)
		write = func(depth int, inside bool) {
			for budget > 0 && rapid.Bool().Draw(t, "more") {
				budget--
				names := inline
				switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); {
				case kind == 0 || depth > 20:
					out.WriteString(rapid.SampledFrom([]string{"word ", " <br> ", "a &lt; b", `<img alt="x">`}).Draw(t, "text"))
					continue
				case kind == 1 && !inside:
					names = blocks
				case kind == 2 && !inside:
					out.WriteString("<table><tbody><tr><td>")
					write(depth+4, false)
					out.WriteString("</td></tr></tbody></table>")
					continue
				}
				name := rapid.SampledFrom(names).Draw(t, "name")
				out.WriteString("<" + name + ">")
				write(depth+1, inside || len(names) == len(inline))
				out.WriteString("</" + name + ">")
			}
		}
		write(0, false)
		want, err := html.Parse(strings.NewReader(out.String()))
		if err != nil {
			t.Fatal(err)
		}
		document, _ := Parse(out.String(), Limits{})
		if got := rendered(t, document); got != rendered(t, want) {
			t.Fatalf("%s:\n got %s\nwant %s", out.String(), got, rendered(t, want))
		}
	})
}

// TestBeyondTheDepth: text stays, structure goes, and what hides itself is hidden there too.
func TestBeyondTheDepth(t *testing.T) {
	hides := func(node *html.Node) bool { return attribute(node, "hidden") == "hidden" }
	document, cut := Parse(strings.Repeat("<div>", 1000)+`seen<span hidden=hidden>no<span>no</span>no</span><p>here</p>`+strings.Repeat("</div>", 1000)+"<p>after", Limits{Hides: hides})
	text, _ := Text(document, Plain, 0)
	if got := strings.Join(strings.Fields(text), " "); got != "seen here after" || cut {
		t.Errorf("%q", got)
	}
	depth := 0
	for node := range document.Descendants() {
		levels := 0
		for at := node; at != nil; at = at.Parent {
			levels++
		}
		depth = max(depth, levels)
	}
	if depth > defaultDepth+4 {
		t.Errorf("%d levels", depth)
	}
}

func TestCutSources(t *testing.T) {
	if text, cut := Parse(strings.Repeat("ü", 300), Limits{Bytes: 101}); !cut || text.LastChild.LastChild.FirstChild.Data != strings.Repeat("ü", 50) {
		t.Error("not cut between characters")
	}
	if _, cut := Parse(strings.Repeat("x<br>", 100), Limits{Nodes: 50}); !cut {
		t.Error("too many nodes are not told")
	}
}
