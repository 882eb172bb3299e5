package mcptool

import (
	"path"
	"slices"
)

// Values of action_policy in a declaration (agent runtime contract, section 4.9).
const (
	actionDirect  = "direct"
	actionPreview = "preview"
)

// matches reports whether a pattern of the operator means a tool. Both names count, the server's and ours, so that a
// server cannot slip past a pattern by writing a name in another way.
func matches(patterns []string, names ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			matched, _ := path.Match(pattern, name) // New checked the pattern
			return matched
		})
	})
}

// offered reports whether the operator lets agents have the tool at all.
func (s Server) offered(names ...string) bool {
	return (len(s.Tools) == 0 || matches(s.Tools, names...)) && !matches(s.Forbidden, names...)
}

func (s Server) action(names ...string) string {
	if matches(s.Preview, names...) {
		return actionPreview
	}
	return actionDirect
}
