package email

import (
	"net/mail"
	"strings"
	"time"

	"inbox/adapters/email/message"
	"inbox/adapters/email/text"
	"inbox/identity"
	"inbox/normalized"
)

// maxSubject bounds the subject that an agent gets, in runes.
const maxSubject = 998

// surfaceOf is what the header says beyond the contract: what the sender wrote, for the agent to read. Who was only in the
// envelope (Bcc) stands nowhere.
func surfaceOf(fields message.Header, to recipient) *normalized.Surface {
	surface := &normalized.Surface{
		Channel: normalized.ViaEmail, Subject: message.Clean(message.DecodeWords(fields.Get("Subject")), maxSubject), Date: dateOf(fields), Tag: to.tag,
		ListID: listID(fields), Language: text.BestLanguage(fields.Get("Content-Language")),
	}
	surface.AddRecipients(&surface.To, surfaceRecipients(fields.Addresses("To"))...)
	surface.AddRecipients(&surface.Cc, surfaceRecipients(fields.Addresses("Cc"))...)
	return surface
}

func surfaceRecipients(boxes []message.Mailbox) []normalized.SurfaceRecipient {
	list := make([]normalized.SurfaceRecipient, 0, len(boxes))
	for _, box := range boxes {
		list = append(list, normalized.SurfaceRecipient{Address: box.Canonical(), Name: box.Name})
	}
	return list
}

// dateOf reads Date; nil = there is none that can be read, or one that no clock of a mail program shows.
func dateOf(fields message.Header) *identity.Time {
	value := fields.Get("Date")
	if len(value) > 200 {
		return nil
	}
	parsed, err := mail.ParseDate(value)
	if err != nil || parsed.Before(time.Unix(0, 0)) || parsed.Year() > 9998 {
		return nil
	}
	at := identity.At(parsed)
	return &at
}

// listID reads the identifier of a mailing list (RFC 2919, section 3).
func listID(fields message.Header) string {
	value := fields.Get("List-Id")
	start := strings.LastIndexByte(value, '<')
	if start < 0 {
		return ""
	}
	id, _, closed := strings.Cut(value[start+1:], ">")
	if id = message.Clean(id, 255); !closed || strings.ContainsAny(id, " <") {
		return ""
	}
	return id
}
