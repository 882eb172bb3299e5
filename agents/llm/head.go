package llm

import (
	"fmt"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// markTurn is the key of a message of the history in the metadata of its envelope.
const markTurn = "turn_key"

// remembered sets the key of a history message: a hash of its ID, role and content. A message that was edited, or that lost a file, has
// another key than before.
func remembered(message envelope.Envelope, id string) envelope.Envelope {
	message.Metadata[markTurn] = tool.Hash([]any{id, message.Role, message.Content})[len("sha256:"):][:24]
	return message
}

// head is a summary that replaces messages of the history in later runs of the turn.
type head struct {
	Turns   []string          `json:"turns"` // keys of the messages that it replaces
	Summary envelope.Envelope `json:"summary"`
}

// readHead reads the head. Older notes counted the replaced messages instead of naming them. Their heads are ignored, because the same
// count may now cover other messages.
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

// shorten replaces the messages that an earlier run summarized with the summary. If one of them was edited or erased, or left the history,
// the summary is discarded, because it may repeat what is gone.
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

// behead records the messages of the history that a summary replaces. Those of an earlier summary among them are included.
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
