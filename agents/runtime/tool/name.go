package tool

import (
	"regexp"
	"strings"

	"inbox/agents/runtime/value"
)

var (
	slugPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
	namePattern = regexp.MustCompile(`^[a-z][a-z0-9_-]*(/[a-z][a-z0-9_-]*)?$`)
	unsafeRuns  = regexp.MustCompile(`[^A-Za-z0-9_]+`)
)

// namespace is the part of a name before the slash, "" for a bare name.
func namespace(name string) string {
	before, _, found := strings.Cut(name, "/")
	if !found {
		return ""
	}
	return before
}

// ProviderSafeName writes a tool name with the letters that every model provider accepts: A-Z, a-z, 0-9 and "_", a
// letter first (agent runtime contract, section 4.1). Two tools can get the same one; the first declared has it.
func ProviderSafeName(name string) string {
	safe := strings.Trim(unsafeRuns.ReplaceAllString(value.Trim(name), "__"), "_")
	if safe == "" {
		return "tool"
	}
	if first := safe[0] | 0x20; first < 'a' || first > 'z' {
		return "tool_" + safe
	}
	return safe
}
