package echo

import (
	"fmt"
	"strings"

	"inbox/normalized"
)

// mention describes a part that is not text in one line; text and tool calls give none.
func mention(part normalized.Part) string {
	switch part.Kind {
	case normalized.PartFile, normalized.PartArtifact:
		return describe(part)
	case normalized.PartLink:
		return oneLine(strings.TrimSpace(part.Title + " " + part.URL))
	}
	return ""
}

// describe names a file with what is known of it: name (type, size): description.
func describe(part normalized.Part) string {
	name := oneLine(part.Name)
	if name == "" {
		name = "a " + part.Kind + " without a name"
	}

	var facts []string
	if part.MIME != "" {
		facts = append(facts, oneLine(part.MIME))
	}
	if part.Size > 0 {
		facts = append(facts, size(part.Size))
	}
	if len(facts) > 0 {
		name += " (" + strings.Join(facts, ", ") + ")"
	}
	if alt := oneLine(part.Alt); alt != "" {
		name += ": " + alt
	}

	return name
}

func size(bytes int64) string {
	switch {
	case bytes < 1<<10:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
}

// oneLine keeps a name that a stranger chose from breaking out of its line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
