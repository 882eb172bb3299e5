package chat

import (
	"encoding/json"
	"fmt"
	"strings"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/normalized"
)

// progress is the answer as the reader has it. After a run that was cut off the text begins anew: as long as it is what
// the reader has, nothing is written; when it differs, only the last frame tells the whole.
type progress struct {
	sent   strings.Builder
	at     int            // how much of the current run's text is known to be sent
	said   bool           // the current run has said something
	apart  bool           // a new part begins: a blank line stands before its text
	differ bool           // the current run says something else than the reader has
	calls  map[string]int // places of the calls of tools
}

// restart is called at the begin of each run.
func (p *progress) restart() { p.at, p.said, p.apart, p.differ = 0, false, false, false }

// add returns the steps that the reader lacks. Calls of tools are left out unless they are shown.
func (p *progress) add(one exchange.Event, tools bool) ([]contract.Delta, error) {
	var delta normalized.Delta
	if err := json.Unmarshal(one.Body, &delta); err != nil {
		return nil, fmt.Errorf("read delta %d of turn %s: %w", one.Seq, one.TurnID, err)
	}
	switch delta.Kind {
	case normalized.DeltaText:
		return p.text(delta.Text), nil
	case normalized.DeltaPartBegin:
		p.apart = p.said
		if delta.Part != nil && delta.Part.Kind == normalized.PartText {
			return p.text(delta.Part.Content), nil
		}
	case normalized.DeltaToolCallStart:
		if tools && delta.Part != nil {
			return p.call(*delta.Part), nil
		}
	}
	return nil, nil
}

func (p *progress) text(text string) []contract.Delta {
	if text == "" {
		return nil
	}
	if p.apart {
		text = "\n\n" + text
	}
	p.said, p.apart = true, false
	if rest := p.rest(text); rest != "" {
		return []contract.Delta{{Kind: contract.DeltaContent, Text: rest}}
	}
	return nil
}

// rest returns what the reader lacks of a text.
func (p *progress) rest(text string) string {
	if p.differ {
		return ""
	}
	if known := min(len(text), p.sent.Len()-p.at); known > 0 {
		if p.sent.String()[p.at:p.at+known] != text[:known] {
			p.differ = true
			return ""
		}
		p.at, text = p.at+known, text[known:]
	}
	p.sent.WriteString(text)
	p.at += len(text)
	return text
}

// call tells a call of a tool once, also when a later run makes it again.
func (p *progress) call(part normalized.Part) []contract.Delta {
	if _, known := p.calls[part.ID]; known {
		return nil
	}
	if p.calls == nil {
		p.calls = map[string]int{}
	}
	index := len(p.calls)
	p.calls[part.ID] = index
	list := []contract.Delta{{Kind: contract.DeltaCall, ToolCallID: part.ID, ToolName: part.Name, Index: index}}
	if len(part.Args) > 0 {
		list = append(list, contract.Delta{Kind: contract.DeltaArgument, ToolCallID: part.ID, Text: string(part.Args), Index: index})
	}
	return list
}
