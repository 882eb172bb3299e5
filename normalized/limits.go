package normalized

// Limits bound a message or a response. Sizes are bytes. The zero value stands for DefaultLimits; to change one limit
// begin with those.
type Limits struct {
	ID       int // id, thread_id, in_reply_to, key_id and urls
	Address  int // of sender, recipient, to, cc
	Name     int // display and file names, tool names, media types
	Parts    int // of a message, a response or a turn of the history
	TextPart int // one text part
	Text     int // all text parts of a message or a response
	History  int // turns

	Identities int // pieces of evidence
	Evidence   int // all of them as JSON

	Inline   int // decoded inline bytes of one file
	ToolJSON int // args and result of a tool call, each
	Trace    int // received_trace as JSON
	Document int // the whole as JSON, without inline bytes
	Depth    int // nesting of a document from outside

	Recipients int // to and cc together
	Metadata   int // keys and values of a response's metadata together

	AllowHTTP bool // development (federation.allow_private): files may be at plain http addresses
}

// DefaultLimits are the limits of the message contract, section 1, and where it names none, ours.
func DefaultLimits() Limits {
	return Limits{
		ID: 2048, Address: 320, Name: 1 << 10, Parts: 64, TextPart: 1 << 20, Text: 4 << 20, History: 200,
		Identities: 16, Evidence: 64 << 10,
		Inline: MaxInlineBytes, ToolJSON: 64 << 10, Trace: 256 << 10, Document: 8 << 20, Depth: 64,
		Recipients: 64, Metadata: 16 << 10,
	}
}

// orDefault replaces the zero value.
func (l Limits) orDefault() Limits {
	if l == (Limits{}) {
		return DefaultLimits()
	}
	return l
}

// documentWithBytes is the most that a document may measure before it is read: everything and its inline bytes.
func (l Limits) documentWithBytes() int {
	return l.Document + l.Parts*base64Size(l.Inline)
}

func base64Size(decoded int) int { return (decoded + 2) / 3 * 4 }
