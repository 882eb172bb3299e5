package activitypub

import (
	"slices"

	"inbox/exchange"
)

// chatMessage is the type of private messages between two, which Lemmy, Mbin and Pleroma keep apart from notes: a Note that
// answers one is refused by Lemmy and shown elsewhere by Pleroma.
const chatMessage = "ChatMessage"

var chatContext = append(slices.Clone(noteContext), map[string]any{
	"litepub": "http://litepub.social/ns#", chatMessage: "litepub:" + chatMessage,
})

// typeOf is the type of the posts of a reply: a chat is answered in the chat, where nobody else is addressed.
func (r *renderer) typeOf(reply exchange.Reply, asked route) string {
	if asked.Chat && !openly(r.visibilityOf(reply, asked)) && len(r.extras(reply, asked)) == 0 {
		return chatMessage
	}
	return "Note"
}

// context names the terms that a post uses.
func (n *note) context() []any {
	if n.Type == chatMessage {
		return chatContext
	}
	return noteContext
}
