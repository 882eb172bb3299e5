package llm

import (
	"encoding/json"
	"errors"
	"fmt"
)

func (a *openAIAnswer) call(part *openAICallPart) error {
	index, begins := a.place(part)
	if index < 0 {
		return errors.New("read model answer: arguments came before the name of their tool")
	}
	if len(a.ids) > maxCalls {
		return fmt.Errorf("the model calls more than %d tools at once", maxCalls)
	}
	a.last = index
	if begins {
		if err := a.emit(Delta{Kind: DeltaToolCall, Index: index, ID: part.ID, Name: part.Function.Name}); err != nil {
			return err
		}
	}
	piece, err := openAIArguments(part.Function.Arguments)
	if err != nil || piece == "" {
		return err
	}
	return a.emit(Delta{Kind: DeltaArguments, Index: index, Text: piece})
}

// place finds the call that a piece belongs to: the one with its index, unless it brings a name and another id, for
// servers that write 0 for every call. A piece without index belongs to the call with its id, or to the last one.
func (a *openAIAnswer) place(part *openAICallPart) (index int, begins bool) {
	found := -1
	if part.Index != nil {
		if at, has := a.calls[*part.Index]; has {
			found = at
		}
	} else if part.Function.Name == "" && len(a.ids) > 0 {
		found = a.last
	}
	if found >= 0 && (part.Function.Name == "" || part.ID == "" && part.Index != nil || part.ID == a.ids[found]) {
		return found, false
	}
	if part.Function.Name == "" {
		return -1, false
	}
	a.ids = append(a.ids, part.ID)
	if a.calls == nil {
		a.calls = map[int]int{}
	}
	if part.Index != nil {
		a.calls[*part.Index] = len(a.ids) - 1
	}
	return len(a.ids) - 1, true
}

func openAIArguments(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if raw[0] != '"' {
		return string(raw), nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", fmt.Errorf("read model answer: arguments: %w", err)
	}
	return text, nil
}
