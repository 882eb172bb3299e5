package design

import (
	"html"
	"regexp"
	"strings"
	"sync"
)

// Letter is a mail that the server writes itself, as HTML: in the colours and the type of the pages, readable in narrow windows and in the
// dark. It loads nothing, so no one learns when it is read. Body is HTML of LetterTitle, LetterText, LetterLink and LetterRemark.
type Letter struct {
	Lang string // of its texts (RFC 5646)
	Site string // who writes
	Body string
}

// HTML returns the document. What mail programs keep of styles differs (caniemail.com), so each element has its own, and the rules for the
// dark are all that stands in the head.
func (l Letter) HTML() string {
	var page strings.Builder
	page.WriteString("<!DOCTYPE html>\n<html lang=\"" + html.EscapeString(l.Lang) + "\">\n<head>\n<meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n" +
		"<meta name=\"supported-color-schemes\" content=\"light dark\">\n<title>" + html.EscapeString(l.Site) + "</title>\n<style>\n" + letterDark() + "</style>\n</head>\n")
	page.WriteString("<body" + styled("paper", "margin:0;padding:0") + ">\n<div" + styled("paper", "padding:24px 12px;"+letterType()) + ">\n" +
		"<div style=\"max-width:560px;margin:0 auto\">\n")
	page.WriteString("<p" + styled("accent", "margin:0 4px 10px;font-size:14px;font-weight:600") + ">" + html.EscapeString(VisibleLine(l.Site)) + "</p>\n")
	page.WriteString("<div" + styled("card", "padding:20px 20px 8px;border-width:1px;border-style:solid;border-radius:14px;overflow-wrap:anywhere;word-break:break-word") + ">\n" +
		l.Body + "</div>\n</div>\n</div>\n</body>\n</html>\n")
	return page.String()
}

// LetterTitle is the heading of a letter.
func LetterTitle(title string) string {
	return `<h1 style="margin:0 0 12px;font-size:20px;line-height:1.3">` + html.EscapeString(VisibleLine(title)) + "</h1>\n"
}

// LetterText writes a text as paragraphs. Lines that begin with "| " are the words of others and stand apart from those of the server.
func LetterText(text string) string {
	var written strings.Builder
	var lines []string
	quoted := false
	end := func() {
		if words := strings.Trim(strings.Join(lines, "\n"), "\n"); words != "" {
			written.WriteString(letterParagraphs(words, quoted))
		}
		lines = nil
	}
	for line := range strings.SplitSeq(Visible(text), "\n") {
		words, quote := strings.CutPrefix(line, "|")
		if quote = quote && (words == "" || words[0] == ' '); quote {
			line = strings.TrimPrefix(words, " ")
		}
		if quote != quoted {
			end()
			quoted = quote
		}
		lines = append(lines, line)
	}
	end()
	return written.String()
}

func letterParagraphs(text string, quoted bool) string {
	if quoted {
		return "<blockquote" + styled("quote", "margin:0 0 12px;padding:8px 12px;border-width:0 0 0 3px;border-style:solid") + ">" + letterLines(text) + "</blockquote>\n"
	}
	var written strings.Builder
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		written.WriteString(`<p style="margin:0 0 12px">` + letterLines(strings.Trim(paragraph, "\n")) + "</p>\n")
	}
	return written.String()
}

// letterLines keeps the lines of a text and the blanks at their beginning, which mail programs drop.
func letterLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		words := strings.TrimLeft(line, " ")
		lines[i] = strings.Repeat("&nbsp;", len(line)-len(words)) + html.EscapeString(words)
	}
	return strings.Join(lines, "<br>\n")
}

// LetterLink is where the reader goes on. The address itself is the link, so that no words hide where it leads. What is no address of the
// web is text.
func LetterLink(label, address string) string {
	shown := html.EscapeString(Visible(address))
	if strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://") {
		shown = "<a" + styled("accent", "font-weight:600") + ` href="` + html.EscapeString(address) + `">` + shown + "</a>"
	}
	return "<div" + styled("link", "margin:4px 0 12px;padding:12px 14px;border-radius:8px") + "><strong>" + html.EscapeString(VisibleLine(label)) + "</strong><br>\n" + shown + "</div>\n"
}

// LetterRemark is a line of less weight.
func LetterRemark(text string) string {
	return "<p" + styled("muted", "margin:0 0 12px;font-size:14px") + ">" + html.EscapeString(VisibleLine(text)) + "</p>\n"
}

// letterRoles are the parts of a letter that have colours: property and token.
var letterRoles = []struct {
	class   string
	colours [][2]string
}{
	{"paper", [][2]string{{"background-color", "paper"}, {"color", "ink"}}},
	{"card", [][2]string{{"background-color", "surface"}, {"border-color", "line"}}},
	{"link", [][2]string{{"background-color", "accent-soft"}, {"color", "ink"}}},
	{"quote", [][2]string{{"background-color", "sunken"}, {"border-color", "edge"}}},
	{"muted", [][2]string{{"color", "muted"}}},
	{"accent", [][2]string{{"color", "accent"}}},
}

// styled returns the attributes of an element with a role.
func styled(class, style string) string {
	for _, role := range letterRoles {
		if role.class != class {
			continue
		}
		for _, one := range role.colours {
			style += ";" + one[0] + ":" + letterColours()[one[1]][0]
		}
	}
	return ` class="` + class + `" style="` + style + `"`
}

// letterDark are the rules for readers who want it dark; they outrank the styles of the elements.
func letterDark() string {
	var rules strings.Builder
	rules.WriteString(":root{color-scheme:light dark;supported-color-schemes:light dark}\n@media (prefers-color-scheme:dark){\n")
	for _, role := range letterRoles {
		rules.WriteString("." + role.class + "{")
		for _, one := range role.colours {
			rules.WriteString(one[0] + ":" + letterColours()[one[1]][1] + "!important;")
		}
		rules.WriteString("}\n")
	}
	rules.WriteString("}\n")
	return rules.String()
}

var colourToken = regexp.MustCompile(`--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);`)

// letterColours are the tokens of colour, in the light and in the dark: mail programs know no variables.
var letterColours = sync.OnceValue(func() map[string][2]string {
	colours := map[string][2]string{}
	for _, found := range colourToken.FindAllStringSubmatch(contrast.ReplaceAllString(string(file("tokens.css")), ""), -1) {
		colours[found[1]] = [2]string{found[2], found[3]}
	}
	return colours
})

var sansToken = regexp.MustCompile(`--sans: ([^;]+);`)

func letterType() string {
	sans := sansToken.FindStringSubmatch(string(file("tokens.css")))
	return "font-size:16px;line-height:1.55;font-family:" + strings.ReplaceAll(sans[1], `"`, "'")
}
