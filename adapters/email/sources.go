package email

import (
	"html"
	"strconv"
	"strings"

	"inbox/adapters/email/text"
	"inbox/normalized"
)

// addSources lists where the answer comes from, as numbered lines with links.
func (c *composer) addSources(citations []normalized.Citation) {
	if len(citations) == 0 {
		return
	}

	rows := []string{html.EscapeString(normalized.SourcesTitle)}
	for i := range citations {
		label := html.EscapeString(text.Readable(citations[i].Label()))
		if address := citations[i].SourceURL; address != "" {
			label = `<a href="` + html.EscapeString(address) + `">` + label + `</a>`
		}
		if note := citations[i].Note; note != "" {
			label += " – " + html.EscapeString(text.Readable(note))
		}
		rows = append(rows, "["+strconv.Itoa(i+1)+"] "+label)
	}
	c.add(normalized.Sources(citations), safeHTML.Sanitize("<p>"+strings.Join(rows, "<br>\n")+"</p>\n"))
}

// addTools says in one line which tools were called for the answer, where its readers may know.
func (c *composer) addTools(parts []normalized.Part) {
	if line := normalized.ToolLine(parts); line != "" {
		c.add(line, "<p><small>"+html.EscapeString(text.Readable(line))+"</small></p>\n")
	}
}
