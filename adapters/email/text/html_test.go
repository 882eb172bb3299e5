package text

import (
	"strings"
	"testing"

	"inbox/internal/markup/markuptest"
	"inbox/normalized"
)

// FuzzHTML reads arbitrary HTML: its links must be ones that a message may carry, and nothing takes long.
func FuzzHTML(f *testing.F) {
	f.Add(`<style>@media all{.x{display:none}}/* y */ u{opacity:0}</style><p class="x">a</p><a href="https://a.test/?b=c">d</a><u>e</u>`)
	f.Add(`<a href=" HTTP://A.test:99999/%zz">x</a><a href="https://\x00">y</a><table><td style="left:-999999999999999999px;position:fixed">z`)
	f.Add("<style>" + strings.Repeat("@media all{", 50) + strings.Repeat("/*", 50) + "</style>" + strings.Repeat("<blockquote type=cite>", 50))
	f.Fuzz(func(t *testing.T, text string) {
		_, _, _, links := readHTML(text, false)
		parts := append([]normalized.Part{normalized.Text("x")}, links...)
		trace := normalized.Response{InReplyTo: "m", Parts: parts}
		if err := normalized.ValidateTrace(trace, normalized.DefaultLimits()); err != nil || len(links) > maxLinks {
			t.Errorf("%d links: %v", len(links), err)
		}
	})
}

func TestStyleSheets(t *testing.T) {
	for sheet, hidden := range map[string]bool{
		".x{display:none}":                                true,
		"/* a comment { */ .x { display : none }":         true,
		"@import url(a.css); .x{display:none}":            true,
		"@media all{.x{display:none}}":                    true,
		"@media only screen , print {.x{display:none}}":   true,
		"@media screen{@media all{.x{display:none}}}":     true,
		"@media print{.x{display:none}}":                  false,
		"@media (max-width:480px){.x{display:none}}":      false,
		"@font-face{font-family:x}p.x{visibility:hidden}": true,
		"@supports (display:grid){.x{display:none}}":      false,
		".y{color:red}.x{color:blue}":                     false,
		".y,.x{font-size:0}":                              true,
		"div .x{display:none}":                            false,
		"body{display:none}":                              false,
		".x{position:absolute;left:-10000px}":             true,
		".x{position:absolute;left:-10px}":                false,
		".x{text-indent:-99999999999999999999px}":         true,
		"@media all{.x{display:none}":                     true,
		"@media print{.y{display:none}}.x{mso-hide:all}":  true,
	} {
		content, _ := FromHTML("<style>" + sheet + `</style><p>seen</p><p class="x">this</p>`)
		if strings.Contains(content, "this") == hidden {
			t.Errorf("%s: %q", sheet, content)
		}
	}
}

// TestHostileHTMLOfMailsCostsItsLength: 36 KiB of nested quotations once took 15 seconds of CPU.
func TestHostileHTMLOfMailsCostsItsLength(t *testing.T) {
	markuptest.CostsItsLength(t, markuptest.HTML, 128<<10, func(source string) {
		if content, _, own, _ := readHTML(source, false); len(content) > maxTextBytes+4096 || len(own) > maxTextBytes+4096 {
			t.Errorf("%d and %d bytes of text", len(content), len(own))
		}
	})
}
