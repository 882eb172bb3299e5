package task

import "regexp"

// private are the keys whose values only managers read (agent runtime contract, section 6.6).
var private = regexp.MustCompile(`(?i)api[_-]?key|authorization|auth[_-]?token|bearer|cookie|credential|diagnostics|nonce|output|` +
	`package|password|private[_-]?key|provenance|raw|secret|token|workflow`)

// Redact gives a copy of a run for callers without privilege: values under private keys are replaced, objects and lists
// by {"redacted": true}, everything else by "[redacted]" (agent runtime contract, section 6.6).
func Redact(payload map[string]any) map[string]any {
	visible := make(map[string]any, len(payload))
	for key, value := range payload {
		visible[key] = redactValue(key, value)
	}
	return visible
}

func redactValue(key string, value any) any {
	_, isObject := value.(map[string]any)
	list, isList := value.([]any)
	switch {
	case private.MatchString(key) && (isObject || isList):
		return map[string]any{"redacted": true}
	case private.MatchString(key):
		return "[redacted]"
	case isObject:
		return Redact(value.(map[string]any))
	case isList:
		visible := make([]any, len(list))
		for index, item := range list {
			visible[index] = redactValue("", item)
		}
		return visible
	}
	return value
}
