package exchange

import (
	"encoding/json"

	"inbox/normalized"
)

// Claim is a private document of an adapter that is written in one transaction with what it is about. Nothing at all is
// written when another document has its place, so that of two messages about one thing the first wins on every node.
type Claim struct {
	Namespace, Key string
	Value          []byte
	Instead        []byte // a document that gives way to Value; nil = none does

	// Alias is another name of what the document is about; empty = none. It is kept in AliasNamespace with the Key as its value
	// where the document is written first, unless the name is taken.
	AliasNamespace, Alias string
}

// Revision is an edit of a message by its sender.
type Revision struct {
	MessageID string
	Principal string // who proved to be its sender
	// Rewrite returns the new parts, and the new notes on how to answer, of the copy that one agent got; no parts = the
	// copy stays. It is called inside a transaction and may be called twice.
	Rewrite func(recipient string, route json.RawMessage) ([]normalized.Part, json.RawMessage)
	Claim   *Claim // fault.Conflict when another document has its place
}

// Reaction is a sign under an answer that asks for nothing: a like, an emoji, a share.
type Reaction struct {
	Type    string `json:"type"`              // the protocol's own word: Like, EmojiReact, Announce
	Actor   string `json:"actor"`             // who
	Content string `json:"content,omitempty"` // the emoji
}
