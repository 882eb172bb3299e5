package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Bounds of the tool calls of one assistant turn: those that are made, and those that a provider may write.
const (
	maxCalls     = 128
	maxWireCalls = 4096
)

// errAmbiguous ends an answer in which it cannot be told to which call a piece belongs. To guess would run a tool with the arguments of
// another one; the next answer may be clear.
var errAmbiguous = errors.New("read model answer: it cannot be told which tool call a piece belongs to")

func ambiguous(format string, values ...any) error {
	return fmt.Errorf("%w: %s", errAmbiguous, fmt.Sprintf(format, values...))
}

// wireCalls are the tool calls of one answer. Servers name the call of a piece in different ways: by index as the API says, by id, or
// not at all; some write index 0 for every call, and some repeat id and name with every piece.
type wireCalls struct {
	list    []wireCall
	byIndex map[int][]int // index on the wire → calls that began with it
}

// wireCall is a call that has begun.
type wireCall struct {
	id, name  string
	arguments jsonEnd
	halves    halves // of the arguments
}

// find returns the call that a piece belongs to: the one with its index, else the one with its id, else the one that began last. begins
// says that it is a new one; in a whole answer every piece is.
func (c *wireCalls) find(part *openAICallPart, arguments string, whole bool) (call int, begins bool, err error) {
	if !whole {
		call, err = c.known(part, arguments)
	} else {
		call = -1
	}
	if err != nil || call >= 0 {
		return call, false, err
	}

	if part.Function.Name == "" {
		return -1, false, ambiguous("arguments came before the name of their tool")
	}
	if len(c.list) >= maxWireCalls {
		return -1, false, fmt.Errorf("the model calls more than %d tools at once", maxWireCalls)
	}

	c.list = append(c.list, wireCall{id: part.ID, name: part.Function.Name})
	call = len(c.list) - 1
	if part.Index != nil {
		if c.byIndex == nil {
			c.byIndex = map[int][]int{}
		}
		c.byIndex[*part.Index] = append(c.byIndex[*part.Index], call)
	}
	return call, true, nil
}

// known returns the call that a piece goes on with; -1 = it begins one.
func (c *wireCalls) known(part *openAICallPart, arguments string) (int, error) {
	byID := -1
	if part.ID != "" {
		byID = slices.IndexFunc(c.list, func(open wireCall) bool { return open.id == part.ID })
	}

	if part.Index != nil && len(c.byIndex[*part.Index]) > 0 {
		return c.indexed(part, arguments, byID)
	}

	last := len(c.list) - 1
	switch {
	case byID >= 0:
		return c.named(byID, part)
	case part.ID != "" && part.Function.Name == "":
		return -1, ambiguous("no call has the id %q", part.ID)
	case part.ID != "" || last < 0:
		return -1, nil
	case part.Function.Name != "":
		if part.Index == nil && c.list[last].goesOn(part.Function.Name, arguments) {
			return last, nil
		}
		return -1, nil
	case part.Index != nil:
		return -1, ambiguous("no call has the index %d", *part.Index)
	}
	return last, nil
}

// indexed returns the call of a piece whose index is known. Where several calls began with it, the id says which of them is meant, else
// it is the last.
func (c *wireCalls) indexed(part *openAICallPart, arguments string, byID int) (int, error) {
	same := c.byIndex[*part.Index]
	last := same[len(same)-1]
	open := &c.list[last]
	switch {
	case byID >= 0 && slices.Contains(same, byID):
		return c.named(byID, part)
	case byID >= 0:
		return -1, ambiguous("the index %d is of another call than the id %q", *part.Index, part.ID)
	case part.ID != "" && open.id != "" && part.Function.Name != "": // a server that writes one index for all of its calls
		return -1, nil
	case part.ID != "" && len(same) > 1:
		return -1, ambiguous("%d calls have the index %d, and none the id %q", len(same), *part.Index, part.ID)
	case part.Function.Name != "" && !open.goesOn(part.Function.Name, arguments):
		return -1, nil
	case open.id == "":
		open.id = part.ID
	}
	return last, nil
}

// named returns a call that a piece names by its id. The same id with another tool is two calls with one id.
func (c *wireCalls) named(call int, part *openAICallPart) (int, error) {
	if part.Function.Name != "" && part.Function.Name != c.list[call].name {
		return -1, ambiguous("the id %q is of two calls", part.ID)
	}
	return call, nil
}

// goesOn reports whether a piece that names a tool, but has no id, is more of the call: the name is repeated, and there is nothing more
// or the arguments had not come to their end.
func (o *wireCall) goesOn(name, arguments string) bool {
	return name == o.name && (arguments == "" || !o.arguments.over)
}

// jsonEnd finds the end of an object in JSON text that comes in pieces.
type jsonEnd struct {
	depth            int
	quoted, escaping bool
	over             bool // the outermost object or list was closed
}

func (j *jsonEnd) add(piece string) {
	for _, char := range []byte(piece) {
		switch {
		case j.escaping:
			j.escaping = false
		case j.quoted:
			j.escaping, j.quoted = char == '\\', char != '"'
		case char == '"':
			j.quoted = true
		case char == '{' || char == '[':
			j.depth++
		case char == '}' || char == ']':
			j.depth--
			j.over = j.over || j.depth == 0
		}
	}
}

func openAIArguments(raw json.RawMessage) (text wireText, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return text, nil
	}
	if raw[0] != '"' {
		return wireText{text: string(raw)}, nil
	}

	if err := json.Unmarshal(raw, &text); err != nil {
		return text, fmt.Errorf("read model answer: arguments: %w", err)
	}
	return text, nil
}
