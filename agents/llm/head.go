package llm

import (
	"fmt"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// markTurn is the key of a message of the history in the metadata of its envelope.
const markTurn = "turn_key"

// remembered gives a message of the history its key: by its id and by what is shown of it, so that an edited one has another key, and one
// whose file was erased too.
func remembered(message envelope.Envelope, id string) envelope.Envelope {
	message.Metadata[markTurn] = tool.Hash([]any{id, message.Role, message.Content})[len("sha256:"):][:24]
	return message
}

// head stands for a part of the history in later runs of the turn.
type head struct {
	Turns   []string          `json:"turns"` // keys of the messages that it replaces
	Summary envelope.Envelope `json:"summary"`
}

// readHead reads the head. One of an older note counted messages instead of naming them: it may stand for others now, and is not used.
func (n *note) readHead(given any) error {
	object, is := given.(map[string]any)
	if !is {
		return nil
	}

	messages, err := envelope.NormalizeMany([]any{object["summary"]})
	if err != nil {
		return fmt.Errorf("read note: %w", err)
	}

	if turns := textsOf(object["turns"]); len(turns) > 0 {
		n.Head = &head{turns, messages[0]}
	}
	return nil
}

// shorten puts the head of an earlier run in the place of what it stands for. It is used only if all of that is still there as it was:
// what was edited, deleted or erased since must not be told by a summary, and what left the history neither.
func (n *note) shorten(prompt []envelope.Envelope) []envelope.Envelope {
	if n.Head == nil {
		return prompt
	}

	stands := map[string]int{}
	for _, key := range n.Head.Turns {
		stands[key]++
	}

	shorter, first := make([]envelope.Envelope, 0, len(prompt)), -1
	for _, message := range prompt {
		key := value.Text(message.Metadata[markTurn])
		if key == "" || stands[key] == 0 {
			shorter = append(shorter, message)
			continue
		}

		stands[key]--
		if first < 0 {
			first = len(shorter)
			shorter = append(shorter, n.Head.Summary)
		}
	}

	for _, missing := range stands {
		if missing > 0 {
			n.Head = nil
			return prompt
		}
	}
	return shorter
}

// behead notes that a summary stands for messages of the history, the summary of before among them.
func (n *note) behead(messages []envelope.Envelope, summary envelope.Envelope) {
	var turns []string
	for i := range messages {
		if key := value.Text(messages[i].Metadata[markTurn]); key != "" {
			turns = append(turns, key)
		} else if n.Head != nil {
			turns = append(turns, n.Head.Turns...)
		}
	}
	n.Head = &head{turns, summary}
}
