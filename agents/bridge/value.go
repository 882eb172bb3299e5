package bridge

import (
	"regexp"
	"strings"
	"time"

	"inbox/agents/runtime/envelope"
)

// Bounds of what strangers name and write, in bytes.
const (
	MaxIDBytes      = 255
	MaxContentBytes = 1 << 20
)

var separators = regexp.MustCompile(`[^a-z0-9-]+`)

// Slug is the one form of the names of clients, connectors and agents: small letters, digits and single runs of other
// characters as "-", none at the ends.
func Slug(name string) string {
	small := envelope.Trim(envelope.Lower(strings.ReplaceAll(name, "_", "-")))
	return strings.Trim(separators.ReplaceAllString(small, "-"), "-")
}

func slugOf(value any) string { return Slug(envelope.Scalar(value)) }

func trimmed(value any) string { return envelope.Trim(envelope.Scalar(value)) }

func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func filled(object map[string]any) map[string]any {
	if object == nil {
		return map[string]any{}
	}
	return object
}

// timestamp gives the member as it is, or now when it is missing or null.
func timestamp(value any) string {
	if value == nil {
		return time.Now().UTC().Format("2006-01-02T15:04:05-07:00")
	}
	return envelope.Scalar(value)
}
