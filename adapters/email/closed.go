package email

import (
	"github.com/emersion/go-smtp"

	"inbox/exchange"
)

// closedTo refuses mail to a recipient that takes none just now (RFC 3463, sections 3.3 and 3.4). A paused agent is final:
// its operator decided so. The others come again.
func (a *Adapter) closedTo(to recipient) *smtp.SMTPError {
	if a.options.Closed == nil {
		return nil
	}
	switch a.options.Closed(to.agent) {
	case exchange.ClosedPaused:
		return answer(550, smtp.EnhancedCode{5, 2, 1}, "This mailbox is disabled and takes no mail")
	case exchange.ClosedBacklog:
		return answer(452, smtp.EnhancedCode{4, 2, 2}, "Too many mails wait in this mailbox, please try again later")
	case exchange.ClosedDisk:
		return answer(452, smtp.EnhancedCode{4, 3, 1}, "This server has no room for mail right now, please try again later")
	}
	return nil
}

// stillOpen looks once more before a mail is read. One recipient who can take it is enough; a recipient who cannot is put off
// by the engine.
func (s *session) stillOpen(env envelope) *smtp.SMTPError {
	var refusal *smtp.SMTPError
	for _, to := range env.recipients {
		if refusal = s.adapter.closedTo(to); refusal == nil {
			return nil
		}
	}
	return refusal
}
