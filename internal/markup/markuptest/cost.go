// Package markuptest checks what converters of markup cost: inputs that are meant to be slow, and how the cost of a
// conversion grows with them.
package markuptest

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Times is how much longer the second document of a kind is, of which the cost is compared.
const Times = 8

// CostsItsLength fails where the cost of a conversion grows faster than a document of any kind. The memory that it takes is counted: its
// pieces and its bytes. What only computes, such as goldmark's search for the partner of a mark, takes none, so the CPU time for one long
// document is compared with that for as many short ones: no speed of a machine is in the comparison, and a cost that is the square of the
// length makes it Times.
func CostsItsLength(t *testing.T, documents func(size int) map[string]string, size int, convert func(source string)) {
	t.Helper()
	small := documents(size / Times)
	for name, large := range documents(size) {
		t.Run(name, func(t *testing.T) {
			times := max(1, int(math.Round(float64(len(large))/float64(len(small[name])))))
			few, more := allocated(func() { convert(small[name]) }), allocated(func() { convert(large) })
			if more.pieces > 2*times*few.pieces+5_000 || more.bytes > 2*times*few.bytes+1<<20 {
				t.Errorf("%d times the length takes %d pieces and %d bytes of memory, once %d and %d", times, more.pieces, more.bytes, few.pieces, few.bytes)
			}

			var once, all int64
			for range 5 { // other processes slow one of both down
				once = threadTime(func() {
					for range times {
						convert(small[name])
					}
				})
				if all = threadTime(func() { convert(large) }); all <= 3*once+clockError {
					return
				}
			}
			t.Errorf("a document takes %d µs of CPU, and %d of a %dth of its length %d µs", all/1000, times, times, once/1000)
		})
	}
}

// Bounded fails when a conversion of any document takes more memory than its length allows, in pieces and in bytes.
func Bounded(t testing.TB, size int, convert func()) {
	t.Helper()
	got := allocated(convert)
	if size = max(size, 16<<10); got.pieces > 32*size || got.bytes > 8<<10*size {
		t.Errorf("%d bytes take %d pieces and %d bytes of memory", size, got.pieces, got.bytes)
	}
}

type memory struct{ pieces, bytes int }

// allocated counts what a function takes. The fewest of three runs are its own: other goroutines take memory, too.
func allocated(convert func()) (least memory) {
	for i := range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		convert()
		runtime.ReadMemStats(&after)
		one := memory{int(after.Mallocs - before.Mallocs), int(after.TotalAlloc - before.TotalAlloc)}
		if i == 0 {
			least = one
		}
		least = memory{min(least.pieces, one.pieces), min(least.bytes, one.bytes)}
	}
	return least
}

// clockError is what the clock of a thread may be wrong by, in nanoseconds.
const clockError = 4_000_000

// threadTime returns the CPU time of a function in nanoseconds, without that of other threads.
func threadTime(convert func()) int64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := clock()
	convert()
	return clock() - before
}

// thisThread is RUSAGE_THREAD of Linux; elsewhere the whole process is measured.
const thisThread = 1

func clock() int64 {
	var usage syscall.Rusage
	who := syscall.RUSAGE_SELF
	if runtime.GOOS == "linux" {
		who = thisThread
	}
	if syscall.Getrusage(who, &usage) != nil {
		return 0
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// HTML returns HTML documents of about a size that are meant to be slow, by name.
func HTML(size int) map[string]string {
	documents := map[string]string{
		"quotations over lines":   strings.Repeat("<blockquote>", 400) + fill("x<br>", size),
		"lists over lines":        strings.Repeat("<ol><li>", 400) + fill("x<br>", size),
		"formatting over blocks":  numbered("<b id=%d>", 300) + fill("<p>x", size),
		"spans over ends":         "<x><div>" + strings.Repeat("<span>", 255) + fill("</x>", size),
		"spans over rules":        "<p><object>" + strings.Repeat("<span>", 255) + fill("<hr>", size),
		"attributes":              "<b " + numbered("a%d ", size/16) + ">" + fill("<b>", size/2),
		"formatting of one style": "<b style='" + fill("a:b;", size/2) + "'>" + fill("<p>x", size/2),
		"code in quotations":      strings.Repeat("<blockquote>", 20) + "<pre>" + fill("\n", size) + "x",
		"wide tables":             "<table><tr><th>" + fill("x", size/8) + fill("<tr><td>y", size),
		"one long word":           fill("a", size),
		"one entity":              "&" + fill("a", size),
	}

	for _, piece := range []string{
		"<ul><li>", "<b>", "<i></p>", "<a href=https://a.test>x", "<font size=1><p>", "<body a=1>", "x</z>", "<table>x<tr>", "<table><tr><td>",
		"<table><tr><th>", "<a><div>", "<b><i><u><div>x</b>", "<p><button>", "<!--", "<!-->", "<", "&", "&aaaa", "<pre>\n", "<template>",
		"<svg><desc><b>", "<math><mi>x", "<select><option>", "<h1><div>", "<title>", "<script><!--<script>", "<dd><address>", "<code>`</code>",
		"<b>x</b>", "</p>", "<a ", `<a href="`, "<tr>", "<object><b>", "<style>a{", "<div style='left:-999px;'>", "<blockquote type=cite>x",
		"<div class=gmail_quote>", "<form>", "<li>", "<ruby><rt>", "<nobr>",
	} {
		documents["many "+piece] = fill(piece, size)
	}

	return documents
}

// Markdown returns Markdown documents of about a size that are meant to be slow, by name.
func Markdown(size int) map[string]string {
	documents := map[string]string{
		"quotations over lines": strings.Repeat(">", 500) + "x\n" + fill("x\n", size),
		"items over lines":      strings.Repeat("- ", 300) + "x\n" + fill("\n", size) + "y",
		"wide table":            "|" + fill("a|", size/4) + "\n|" + fill("-|", size/4) + "\n" + fill("|\n", size/2),
		"long definition":       "[a]: " + fill("x", size/2) + "\n\n" + fill("[a] ", size/2),
		"definitions":           numbered("[a%d]: b\n", size/16),
		"ticks":                 ticks(size),
		"long word":             fill("a", size) + "@b",
		"parentheses":           "[a](" + fill("(", size),
		"small table":           "|a|b|\n|-|-|\n" + fill("|*a*|b|\n", size),
		"hidden fences":         "- ```\n" + fill("*a_", size), "fences in comments": "<!--\n```\n-->\n" + fill("*a_", size),
	}

	for _, piece := range []string{
		"*a_", "*a _", "**a ", "*a **a ", "~~a*", "[", "[a](", "![", "[a](<b", "[](", "[x][y", "` ``", "<", "<a ", "a<!--", "a<?", "a<![CDATA[",
		"</a ", `<a b="`, "<http:a", ">", "> - ", "- ", "- [ ] ", "1. ", "1) a\n", "[a]: ", "[a]: b '\n", "[a]: <b\n", "&", "www.a", "http://", "a@b.",
		"x\n=\n", "```\n", "~~~ a\n> ", "\t", "\n", "<div>\n", "<script>\n", "\\", "[a]((((((((((", "***", "*a\n\n", "> *a_\n", "- *a_\n", "1. *a_\n", "2. *a_\n", "*\n",
	} {
		documents["many "+piece] = fill(piece, size)
	}

	return documents
}

func fill(piece string, size int) string { return strings.Repeat(piece, max(1, size/len(piece))) }

func numbered(format string, count int) string {
	var out strings.Builder
	for i := range count {
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

func ticks(size int) string {
	var out strings.Builder
	for i := 1; out.Len() < size; i++ {
		out.WriteString(strings.Repeat("`", i) + " ")
	}
	return out.String()
}
