package activitypub

import (
	"encoding/json"
	"strings"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
)

// poll lists the choices of a Question with their votes so far, and when it ends.
func poll(note document.Object, now time.Time) string {
	choices := document.List(note["oneOf"])
	if len(choices) == 0 {
		choices = document.List(note["anyOf"])
	}
	var lines []string
	for _, entry := range choices {
		choice, _ := entry.(document.Object)
		if name := notetext.Visible(document.Text(choice, "name"), 512); name != "" {
			lines = append(lines, "- "+name+votes(choice))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	if end := pollEnd(note, now); end != "" {
		lines = append(lines, end)
	}
	return strings.Join(lines, "\n")
}

func votes(choice document.Object) string {
	replies := document.Embedded(choice["replies"])
	if count, isNumber := replies["totalItems"].(json.Number); isNumber {
		return " (" + document.Clip(count.String(), 20) + ")"
	}
	return ""
}

// pollEnd reads closed, a time or a mere true, before endTime. Pleroma and Akkoma write into closed when an open
// poll will be.
func pollEnd(note document.Object, now time.Time) string {
	if closed, isTime := document.Time(note["closed"]); isTime && closed.After(now) {
		return "Poll ends " + closed.Format(time.RFC3339)
	} else if isTime {
		return "Poll closed " + closed.Format(time.RFC3339)
	}
	if closed, _ := note["closed"].(bool); closed {
		return "Poll closed"
	}
	if end, isTime := document.Time(note["endTime"]); isTime {
		return "Poll ends " + end.Format(time.RFC3339)
	}
	return ""
}
