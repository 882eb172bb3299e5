package activitypub

import (
	"encoding/json"
	"strings"
	"time"
)

// poll lists the choices of a Question with their votes so far, and when it ends.
func poll(note object, now time.Time) string {
	choices := listed(note["oneOf"])
	if len(choices) == 0 {
		choices = listed(note["anyOf"])
	}
	var lines []string
	for _, entry := range choices {
		choice, _ := entry.(object)
		if name := visible(str(choice, "name"), 512); name != "" {
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

func votes(choice object) string {
	replies := embedded(choice["replies"])
	if count, isNumber := replies["totalItems"].(json.Number); isNumber {
		return " (" + clip(count.String(), 20) + ")"
	}
	return ""
}

// pollEnd reads closed, a time or a mere true, before endTime. Pleroma and Akkoma write into closed when an open
// poll will be.
func pollEnd(note object, now time.Time) string {
	if closed, isTime := timeOf(note["closed"]); isTime && closed.After(now) {
		return "Poll ends " + closed.Format(time.RFC3339)
	} else if isTime {
		return "Poll closed " + closed.Format(time.RFC3339)
	}
	if closed, _ := note["closed"].(bool); closed {
		return "Poll closed"
	}
	if end, isTime := timeOf(note["endTime"]); isTime {
		return "Poll ends " + end.Format(time.RFC3339)
	}
	return ""
}

// timeOf reads an xsd:dateTime, in UTC. One without a zone is none: nobody knows what it means.
func timeOf(value any) (time.Time, bool) {
	text, _ := value.(string)
	at, err := time.Parse(time.RFC3339, text)
	return at.UTC(), err == nil
}
