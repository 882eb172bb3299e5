package tool

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"inbox/agents/runtime/value"
)

// isTrue tells whether a value is the flag true; no other value counts.
func isTrue(value any) bool {
	flag, _ := value.(bool)
	return flag
}

// wholeNumber reads a number, a flag or the digits at the start of a text; everything else is 0.
func wholeNumber(given any) int64 {
	switch value := value.Plain(given).(type) {
	case bool:
		if value {
			return 1
		}
	case string:
		return leadingNumber(value)
	case json.Number:
		return leadingNumber(value.String())
	}
	return 0
}

func leadingNumber(text string) int64 {
	text = strings.TrimLeft(text, " \t\n\r\v\f")
	if number, ok := decimalNumber(text); ok {
		if math.Abs(number) < 1<<62 {
			return int64(number)
		}
		return math.MaxInt64
	}
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	number, _ := strconv.ParseInt(text[:end], 10, 64)
	return number
}

// decimalNumber reads a text that looks like a decimal number; spaces around it are allowed.
func decimalNumber(text string) (float64, bool) {
	text = strings.Trim(text, " \t\n\r\v\f")
	if text == "" || strings.Trim(text, "0123456789+-.eE") != "" {
		return 0, false
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(number, 0) {
		return 0, false
	}
	return number, true
}

// texts reads a list of names: a single text is a list of one, members that are no text or blank are left out,
// everything is trimmed and each name stands once.
func texts(given any) []string {
	items := []any{given}
	if isContainer(given) {
		items = value.Elements(given)
	}
	var names nameList
	for _, item := range items {
		if name, ok := value.NonBlank(item); ok {
			names.add(name)
		}
	}
	return names.ordered
}

// nameList keeps names in order, each once, in linear time: lists of names come from strangers.
type nameList struct {
	ordered []string
	seen    map[string]bool
}

func (l *nameList) add(name string) {
	if l.seen[name] {
		return
	}
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[name] = true
	l.ordered = append(l.ordered, name)
}

// members gives a value as an object if it is a container at all: a list with items has no named members.
func members(given any) map[string]any { return value.Assoc(value.Plain(given)) }

func isContainer(given any) bool { return value.Container(value.Plain(given)) }

func list(items []string) []any {
	values := make([]any, len(items))
	for index, item := range items {
		values[index] = item
	}
	return values
}
