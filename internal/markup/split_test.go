package markup

import (
	"strings"
	"testing"
)

// longAnswers write one block of about a size, by name.
var longAnswers = map[string]func(size int) Document{
	"a paragraph":         func(size int) Document { return FromMarkdown(fill("word ", size)) },
	"one word":            func(size int) Document { return FromText(fill("a", size)) },
	"code":                func(size int) Document { return FromMarkdown("```\n" + fill("x := 1\n", size) + "```") },
	"code of empty lines": func(size int) Document { return FromMarkdown("```\nx" + fill("\n", size) + "x\n```") },
	"a list":              func(size int) Document { return FromMarkdown(fill("- an item\n", size)) },
	"a quoted list":       func(size int) Document { return FromMarkdown(fill("> 1. > - an item\n", size)) },
	"a table":             func(size int) Document { return FromMarkdown("| h | i |\n|---|---|\n" + fill("| aaaa | b |\n", size)) },
	"a long table head": func(size int) Document {
		return FromMarkdown("| h | " + fill("i ", size) + "|\n|---|---|\n" + fill("| aaaa | b |\n", size))
	},
	"a table of bodies": func(size int) Document { return FromHTML("<table>" + fill("<tbody><tr><td>a", size)) },
	"empty elements":    func(size int) Document { return FromHTML("<ul><li>x" + fill("<li>", size) + fill("<li>y", size)) },
	"emphasis":          func(size int) Document { return FromHTML("<p>" + fill("<b>x</b> ", size)) },
	"lines":             func(size int) Document { return FromText(fill("x\n", size)) },
	"blanks":            func(size int) Document { return FromHTML("<p>x" + fill("<b> </b>", size) + "x") },
}

func fill(piece string, size int) string { return strings.Repeat(piece, size/len(piece)) }

// looked counts the nodes and bytes that cutting a document looks at.
func looked(d Document, limit int) int {
	c := cutter{limit: limit, counted: &counted{}}
	for n := d.nextBlock(); n != nil; n = d.nextBlock() {
		c.pieces(n, func(Document) bool { return true })
	}
	return c.looked
}

// TestCuttingCostsTheLength: four times the length costs four times as much, however short the pieces are.
func TestCuttingCostsTheLength(t *testing.T) {
	for _, limit := range []int{1, 7, 500} {
		for name, answer := range longAnswers {
			once, more := looked(answer(16<<10), limit), looked(answer(64<<10), limit)
			if more > 5*once || once > 16*(16<<10) {
				t.Errorf("pieces of %d of %s: %d nodes and bytes are looked at in 16 KiB, and %d in 64 KiB", limit, name, once, more)
			}
		}
	}
}

// TestPiecesStop: a caller that wants no more pieces stops the work.
func TestPiecesStop(t *testing.T) {
	count := 0
	for range FromText(strings.Repeat("word ", 1000)).Pieces(5) {
		if count++; count == 3 {
			break
		}
	}
	if count != 3 {
		t.Error(count, "pieces")
	}
}

func BenchmarkPieces(b *testing.B) {
	for name, answer := range longAnswers {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				document := answer(64 << 10)
				b.StartTimer()
				for range document.Pieces(1) {
				}
			}
		})
	}
}
