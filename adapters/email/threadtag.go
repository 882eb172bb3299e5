package email

import (
	"strings"

	"github.com/google/uuid"
)

// Thread tags are what Reply-To of our answers carries where the operator wants it: agent+t.<token>@domain. The token is the
// id of the answer, signed, so that whoever writes there answers it, even with a mail program that loses In-Reply-To.
const threadMark = "t."

// threadAddress returns the Reply-To of a reply; empty = none.
func (a *Adapter) threadAddress(replyID, local string) string {
	id, err := uuid.Parse(replyID)
	if !a.options.ThreadTags || err != nil {
		return ""
	}
	return tagged(local, threadMark+a.tokens.Sign(threadMark, id)) + "@" + a.domain
}

// answeredReply returns the reply whose thread tag this is; empty = it is none of ours.
func (a *Adapter) answeredReply(tag string) (replyID string) {
	token, marked := strings.CutPrefix(strings.ToLower(tag), threadMark)
	if !marked {
		return ""
	}
	replyID, _ = a.tokens.Verify(threadMark, token)
	return replyID
}
