package email

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/message"
	"inbox/internal/fault"
)

// outcome is what became of the recipients of one mail. Whoever is in neither list has it when there was no error.
type outcome struct {
	text    string    // what the peer said to the mail
	refused []refusal // for good
	later   []refusal // to be tried again, without the others
}

// refusal is the answer to one recipient.
type refusal struct {
	address string
	answer  *smtp.SMTPError
}

func addressesOf(list []refusal) []string {
	addresses := make([]string, 0, len(list))
	for _, one := range list {
		addresses = append(addresses, one.address)
	}
	return addresses
}

// whoRefused gives who does not have the mail and never will.
func (o outcome) whoRefused() map[string]string {
	if len(o.refused) == 0 {
		return nil
	}
	who := map[string]string{}
	for _, one := range o.refused {
		who[addressKey(one.address)] = message.Clip(codeText(one.answer), 300)
	}
	return who
}

// detail is the line that the operator reads.
func (o outcome) detail() string {
	text := o.text
	if len(o.refused) > 0 {
		var who []string
		for _, one := range o.refused {
			who = append(who, one.address+" ("+message.Clip(one.answer.Message, 100)+")")
		}
		text += "; refused: " + strings.Join(who, "; ")
	}
	return text
}

// dead says whether the failure is the connection's and not an answer to this mail.
func dead(err error) bool {
	var refusal *smtp.SMTPError
	return !errors.As(err, &refusal) || refusal.Code == 421
}

// setupError is trouble before a mail was offered: it says nothing about the mail, whatever its code.
type setupError struct{ cause error }

func (e *setupError) Error() string { return "open session: " + e.cause.Error() }
func (e *setupError) Unwrap() error { return e.cause }

// classed says whether a failure is worth repeating: 5xx about this mail is final, everything else is not. Trouble with
// the session itself (login, TLS, greeting) is somebody's to repair and must not cost a reply. who leads the reason.
func classed(who string, err error) error {
	var refusal *smtp.SMTPError
	var setup *setupError
	var known *fault.Fault
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.As(err, &setup):
		return fault.RetryIn(0, who+": "+message.Clip(setup.cause.Error(), 400), err)
	case !errors.As(err, &refusal):
		return fault.RetryIn(0, who+": "+message.Clip(err.Error(), 400), err)
	}
	text := who + ": " + message.Clip(codeText(refusal), 480)
	if refusal.Code/100 == 5 && !manyRecipients(refusal) && !aboutLogin(refusal.Code) {
		return fault.GiveUp(text, err)
	}
	return fault.RetryIn(0, text, err)
}

// manyRecipients reads 552 as older servers mean it when they answer RCPT (RFC 5321, section 4.5.3.1.10), unless it says
// itself that the mail or the mailbox is what is too large.
func manyRecipients(answer *smtp.SMTPError) bool {
	switch answer.EnhancedCode {
	case smtp.EnhancedCode{5, 3, 4}, smtp.EnhancedCode{5, 2, 2}, smtp.EnhancedCode{5, 2, 3}:
		return false
	}
	return answer.Code == 552
}

// aboutLogin says whether the server wants TLS or a login first (RFC 4954, section 6; RFC 3207, section 4).
func aboutLogin(code int) bool { return code == 530 || code == 535 || code == 538 }

func codeText(e *smtp.SMTPError) string {
	code := strconv.Itoa(e.Code)
	if hasEnhanced(e) {
		code += " " + enhancedText(e)
	}
	return code + " " + e.Message
}

func hasEnhanced(e *smtp.SMTPError) bool {
	return e.EnhancedCode != (smtp.EnhancedCode{}) && e.EnhancedCode != smtp.NoEnhancedCode
}

func enhancedText(e *smtp.SMTPError) string {
	return fmt.Sprintf("%d.%d.%d", e.EnhancedCode[0], e.EnhancedCode[1], e.EnhancedCode[2])
}

// answerIn finds what the peer said; nil when it said nothing.
func answerIn(err error) *smtp.SMTPError {
	var answer *smtp.SMTPError
	errors.As(err, &answer)
	return answer
}
