package email

import (
	"crypto/hmac"
	"strings"

	"github.com/google/uuid"
)

// Thread tags are what Reply-To of our answers carries where the operator wants it: agent+t.<token>@domain. The token is the
// id of the answer, signed, so that whoever writes there answers it, even with a mail program that loses In-Reply-To.
const threadMark = "t."

// threadAddress gives the Reply-To of a reply; empty = none.
func (a *Adapter) threadAddress(replyID, local string) string {
	id, err := uuid.Parse(replyID)
	if !a.options.ThreadTags || err != nil {
		return ""
	}
	token := tokenCode.EncodeToString(id[:]) + tokenCode.EncodeToString(a.threadMAC(id))
	return tagged(local, threadMark+strings.ToLower(token)) + "@" + a.domain
}

// threadMAC differs from that of bounce addresses: neither token can be used as the other.
func (a *Adapter) threadMAC(id uuid.UUID) []byte { return a.mac([]byte(threadMark), id[:]) }

// answeredReply gives the reply whose thread tag this is; empty = it is none of ours.
func (a *Adapter) answeredReply(tag string) (replyID string) {
	token, marked := strings.CutPrefix(strings.ToLower(tag), threadMark)
	if !marked {
		return ""
	}
	id, mac, ok := splitToken(token)
	if !ok || !hmac.Equal(mac, a.threadMAC(id)) {
		return ""
	}
	return id.String()
}
