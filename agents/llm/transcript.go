package llm

import (
	"slices"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// nudge is the metadata type of words that the loop puts into the assistant's mouth about repeated failures.
const nudge = "identical_failure_nudge"

// conversation turns a transcript into what a model reads: calls of one turn together, then all their results, sides
// alternating, the user's first and last.
type conversation struct {
	tools    tool.Declarations
	pictures *images
	files    func(result envelope.Envelope) []Block // that came with it; nil = none
	messages []Message
	turn     any // payload.turn of the calls in messages[calls]; nil = none that may grow
	calls    int // place of the assistant's turn with these calls; their results stand right after it
}

// write appends the transcript. Calls and results without their other half are left out: providers refuse them.
func (c *conversation) write(transcript []envelope.Envelope) {
	for _, message := range envelope.Prune(transcript).Messages {
		switch {
		case message.Type == envelope.TypeToolCall:
			c.call(message)
		case message.Type == envelope.TypeToolResult:
			c.result(message)
		case message.Role == RoleAssistant && message.Metadata["type"] != nudge:
			c.turn = nil
			c.say(RoleAssistant, message)
		default:
			c.say(RoleUser, message)
		}
	}
}

// finish returns the messages in the form that every API takes.
func (c *conversation) finish() []Message {
	if len(c.messages) > 0 && c.messages[0].Role == RoleAssistant {
		opening := Message{Role: RoleUser, Blocks: []Block{{Kind: BlockText, Text: "(You began this conversation.)"}}}
		c.messages = slices.Insert(c.messages, 0, opening)
	}
	if last := len(c.messages) - 1; last < 0 || c.messages[last].Role == RoleAssistant {
		c.messages = append(c.messages, Message{Role: RoleUser, Blocks: []Block{{Kind: BlockText, Text: "(Go on.)"}}})
	}
	return c.messages
}

// side returns the last message if it is of the role, else a new one.
func (c *conversation) side(role string) *Message {
	if last := len(c.messages) - 1; last < 0 || c.messages[last].Role != role {
		c.messages = append(c.messages, Message{Role: role})
	}
	return &c.messages[len(c.messages)-1]
}

func (c *conversation) say(role string, message envelope.Envelope) {
	blocks := c.blocks(message)
	if len(blocks) == 0 {
		return
	}
	side := c.side(role)
	side.Blocks = append(side.Blocks, blocks...)
	if marked(message.Metadata, markBreakpoint) { // more of this side may follow, such as today's request
		side.CacheBreakpoint, side.CacheBlocks = true, len(side.Blocks)
	}
}

func (c *conversation) blocks(message envelope.Envelope) []Block {
	list, several := message.Content.([]any)
	if !several {
		list = []any{map[string]any{"type": "text", "text": message.Text()}}
	}

	var blocks []Block
	if text := c.pictures.text(list); text != "" {
		blocks = append(blocks, Block{Kind: BlockText, Text: text})
	}
	for _, item := range list {
		if block := value.Assoc(item); block["type"] == "image" {
			if picture, has := c.pictures.byRef[value.Text(block["ref"])]; has {
				blocks = append(blocks, picture)
			}
		}
	}

	return blocks
}

// call puts calls of one turn into one message, although the transcript has each result right after its call.
func (c *conversation) call(message envelope.Envelope) {
	turn := value.Plain(message.Payload["turn"])
	if c.turn == nil || !value.Equal(turn, c.turn) {
		c.side(RoleAssistant)
		c.turn, c.calls = turn, len(c.messages)-1
	}
	c.messages[c.calls].Blocks = append(c.messages[c.calls].Blocks, Block{
		Kind: BlockCall, ID: message.ToolCallID(), Name: shown(c.tools, message.ToolName()),
		Arguments: jsonText(value.Assoc(message.Payload["parameters"])),
	})
}

func (c *conversation) result(message envelope.Envelope) {
	if c.calls+1 >= len(c.messages) {
		c.messages = append(c.messages, Message{Role: RoleUser})
	}

	answers := &c.messages[c.calls+1]
	at := slices.IndexFunc(answers.Blocks, func(block Block) bool { return block.Kind != BlockResult })
	if at < 0 {
		at = len(answers.Blocks)
	}

	answers.Blocks = slices.Insert(answers.Blocks, at, Block{
		Kind: BlockResult, ID: message.ToolCallID(), Text: c.resultText(message), Failed: !succeeded(message.Payload),
	})
	if c.files != nil {
		answers.Blocks = append(answers.Blocks, c.files(message)...)
	}
}

// resultText adds the citations of the result, which the text of the records lacks, and marks what strangers wrote. The
// records keep the text as it came.
func (c *conversation) resultText(message envelope.Envelope) string {
	text := message.Text()
	if citations := citationsOf(message.Payload); len(citations) > 0 && value.Assoc(message.Payload["result"])[tool.CitationsKey] == nil {
		text += "\n\nSources of this result: " + value.EncodeText(citations)
	}

	declaration, has := c.tools.Get(c.tools.Resolve(message.ToolName()))
	if !has || !tool.Strange(declaration) {
		return text
	}
	return tool.MarkText(declaration.Name(), text)
}
