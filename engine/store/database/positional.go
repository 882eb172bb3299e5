package database

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// positional is a statement for SQLite whose parameters have no names. The driver looks up the name of each parameter at every execution,
// makes a string of it and compares it with the numbers of all arguments. That was a quarter of the allocations of a message.
type positional struct {
	text  string
	order []int // the arguments in the order of the parameters, counted from 0; nil = as they are
}

// newPositional replaces $1, $2 and so on by question marks. A text that cannot be read this way is used as it is. To SQLite a parameter that
// is repeated is several ones afterwards: ORDER BY and GROUP BY do not find the column that is made of the same one.
func newPositional(query string) positional {
	var text strings.Builder
	var order []int
	inOrder := true
	for at := 0; at < len(query); {
		length := quotedLength(query[at:])
		if length == 0 && query[at] == '$' {
			digits := digitsAt(query[at+1:])
			end := at + 1 + digits
			number, err := strconv.Atoi(query[at+1 : end])
			if err != nil || number == 0 || at > 0 && inName(query[at-1]) || end < len(query) && (inName(query[end]) || query[end] == '(') {
				return positional{text: query}
			}
			inOrder = inOrder && number == len(order)+1
			order = append(order, number-1)
			text.WriteByte('?')
			at = end
			continue
		}
		if length == 0 && strings.IndexByte("?:@", query[at]) >= 0 { // another kind of parameter
			return positional{text: query}
		}
		length = max(length, 1)
		text.WriteString(query[at : at+length])
		at += length
	}

	if inOrder {
		order = nil
	}
	return positional{text.String(), order}
}

// quotedLength returns the length of the literal, quoted name or comment with which a text begins; 0 = it begins with none.
func quotedLength(text string) int {
	var end string
	switch {
	case text[0] == '\'', text[0] == '"', text[0] == '`':
		end = text[:1] // a doubled quote ends one literal and begins the next
	case text[0] == '[':
		end = "]"
	case strings.HasPrefix(text, "--"):
		end = "\n"
	case strings.HasPrefix(text, "/*"):
		end = "*/"
	default:
		return 0
	}

	begin := 1
	if text[0] == '-' || text[0] == '/' {
		begin = 2
	}
	if closing := strings.Index(text[begin:], end); closing >= 0 {
		return begin + closing + len(end)
	}
	return len(text)
}

// inName reports whether a character may be in a name or a number of SQLite (its tokenizer, IdChar).
func inName(char byte) bool {
	return char == '_' || char == '$' || char >= 0x80 || '0' <= char && char <= '9' || 'a' <= char|0x20 && char|0x20 <= 'z'
}

func digitsAt(text string) int {
	return len(text) - len(strings.TrimLeft(text, "0123456789"))
}

var errTooFewArguments = errors.New("a statement has more parameters than arguments")

// arguments returns one argument for each parameter.
func (p positional) arguments(given []any) ([]any, error) {
	if p.order == nil {
		return given, nil
	}

	ordered := make([]any, len(p.order))
	for i, number := range p.order {
		if number >= len(given) {
			return nil, fmt.Errorf("%w: $%d of %d", errTooFewArguments, number+1, len(given))
		}
		ordered[i] = given[number]
	}
	return ordered, nil
}
