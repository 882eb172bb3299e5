// Package markuptest checks what converters of markup cost: inputs that are meant to be slow, and the CPU time of a
// conversion.
package markuptest

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// PerKiB is what a conversion may cost for each KiB of its input.
const PerKiB = time.Millisecond

// floor is the size as which smaller inputs count: the clock of a thread and the collector weigh more than they do.
const floor = 16 << 10

// Check fails when a conversion costs more CPU time of its thread than PerKiB allows. What other threads do does not count;
// the cheapest of several runs does.
func Check(t testing.TB, size int, convert func()) {
	t.Helper()
	allowed := Slowdown * PerKiB * time.Duration(max(size, floor)) / 1024
	best := time.Duration(-1)
	for range 5 {
		if cost := threadTime(convert); best < 0 || cost < best {
			best = cost
		}
		if best <= allowed {
			return
		}
	}
	t.Errorf("%d bytes cost %s of CPU; %s is allowed", size, best, allowed)
}

func threadTime(convert func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := clock()
	convert()
	return clock() - before
}

// thisThread is RUSAGE_THREAD of Linux; elsewhere the whole process is measured.
const thisThread = 1

func clock() time.Duration {
	var usage syscall.Rusage
	who := syscall.RUSAGE_SELF
	if runtime.GOOS == "linux" {
		who = thisThread
	}
	if syscall.Getrusage(who, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
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
