package recording

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// How closely answers are compared.
const (
	CompareState = "state" // the state of the message alone
	CompareShape = "shape" // also kinds and types of the parts of the answer, and the tools that were called
	CompareText  = "text"  // also what the answer says
)

// Comparisons lists them.
func Comparisons() []string { return []string{CompareText, CompareShape, CompareState} }

// Difference is one thing that is not as it was recorded.
type Difference struct {
	What     string `json:"what"` // state, parts, tools or text
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
}

// Compare returns what differs between an expected and an actual end of the same message. Both were scrubbed; both are scrubbed again by the rules
// for replays, so that names of servers do not count.
func Compare(recorded, replayed Expected, how string, scrubber *Scrubber) []Difference {
	var found []Difference
	differ := func(what, before, now string) {
		if before != now {
			found = append(found, Difference{what, before, now})
		}
	}

	differ("state", recorded.State, replayed.State)
	if how == CompareState {
		return found
	}
	differ("parts", shapes(recorded.Parts), shapes(replayed.Parts))
	differ("tools", strings.Join(sorted(recorded.Tools), ", "), strings.Join(sorted(replayed.Tools), ", "))
	if how == CompareText {
		said := func(e Expected) string {
			return strings.TrimSpace(deadlineForm.ReplaceAllString(scrubber.Text(e.Text), "Valid until [time]."))
		}
		differ("text", said(recorded), said(replayed))
	}
	return found
}

// deadlineForm is the line of a demand that says until when it can be met (policypart.Part.Text): each time it is made it is another time.
var deadlineForm = regexp.MustCompile(`Valid until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\.`)

func shapes(parts []Part) string {
	words := make([]string, 0, len(parts))
	for _, part := range parts {
		words = append(words, strings.TrimSpace(fmt.Sprintf("%s %s", part.Kind, part.MIME)))
	}
	return strings.Join(words, ", ")
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}
