package email

import (
	"html"
	"strings"

	"github.com/microcosm-cc/bluemonday"

	"inbox/internal/markup"
)

// safeHTML is what an outgoing mail may hold: text structure and absolute links, nothing that is fetched.
var safeHTML = func() *bluemonday.Policy {
	policy := bluemonday.NewPolicy()
	policy.AllowElements("p", "br", "hr", "div", "span", "strong", "b", "em", "i", "u", "s", "del", "sub", "sup", "small", "code", "pre",
		"blockquote", "h1", "h2", "h3", "h4", "h5", "h6")
	policy.AllowLists()
	policy.AllowTables()
	policy.AllowAttrs("href").OnElements("a")
	policy.AllowURLSchemes("http", "https", "mailto")
	policy.AllowRelativeURLs(false)
	policy.RequireParseableURLs(true)
	return policy
}()

// page is that of a mail.
var page = markup.Page{Sanitize: func(content string) string { return tableStyles.Replace(safeHTML.Sanitize(content)) }}

// tableStyles draw the lines of tables at their elements, because mail programs drop style sheets (caniemail.com). The grey is visible on white and on
// black. The input is what the policy above let pass: "<" begins an element of it and nothing else.
var tableStyles = strings.NewReplacer(
	"<thead", "<thead", // begins like th
	"<table", `<table style="border-collapse:collapse;margin:0 0 12px"`,
	"<th", `<th`+cellStyle,
	"<td", `<td`+cellStyle,
)

const cellStyle = ` style="border:1px solid #808080;padding:4px 8px;vertical-align:top"`

// document returns the HTML of an answer. It has no colours of its own, so it is as light or dark as the reader's program, and loads nothing.
func document(language, title, content string) string {
	open := "<html>"
	if language != "" {
		open = `<html lang="` + html.EscapeString(language) + `">`
	}
	return "<!DOCTYPE html>\n" + open + "\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
		"<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"supported-color-schemes\" content=\"light dark\">\n" +
		"<title>" + html.EscapeString(title) + "</title>\n</head>\n<body>\n" + content + "</body>\n</html>\n"
}
