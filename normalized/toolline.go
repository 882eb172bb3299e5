package normalized

import "strings"

// Bounds of the one line about tools, in bytes.
const (
	maxToolLine      = 400
	maxToolName      = 80
	maxToolArguments = 80
)

// ToolLine is what a reader of a text sees of the calls of tools in an answer: one line such as "Tools: search, fetch (failed)",
// with the start of the arguments where they are there. Empty without calls.
func ToolLine(parts []Part) string {
	var named []string
	size, left := len("Tools: "), 0
	for i := range parts {
		if parts[i].Kind != PartToolCall {
			continue
		}
		entry := parts[i].toolEntry()
		if size += len(entry) + len(", "); size > maxToolLine {
			left++
			continue
		}
		named = append(named, entry)
	}

	switch {
	case len(named) == 0:
		return ""
	case left > 0:
		named = append(named, "…")
	}
	return "Tools: " + strings.Join(named, ", ")
}

func (p *Part) toolEntry() string {
	entry := cutBytes(cleanName(p.Name), maxToolName)
	if arguments := strings.Join(strings.Fields(cleanText(string(p.Args))), " "); arguments != "" && arguments != "{}" && arguments != "[]" && arguments != "null" {
		if cut := cutBytes(arguments, maxToolArguments); cut != arguments {
			arguments = cut + "…"
		}
		entry += " " + arguments
	}

	switch {
	case p.Error != nil:
		entry += " (failed)"
	case p.running():
		entry += " (not finished)"
	}
	return entry
}
