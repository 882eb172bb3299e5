// Package outbound offers finished mails to other servers: directly to those that the DNS names for a domain, under TLS as
// its policy of MTA-STS (RFC 8461) or the TLSA records of its servers (DANE, RFC 7672) demand, or to one smarthost. It keeps
// sessions for a short while, bounds how many there are at once, and classes every answer: sent, refused for good, or later.
//
// It writes no mail, signs nothing, keeps no queue and knows no agents: a mail is its bytes and its envelope, and when to
// try again is the caller's to decide.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/message"
	"inbox/internal/fault"
)

// Mail is a finished mail with its envelope.
type Mail struct {
	From       string
	Recipients []string // of one domain
	Domain     string
	EnvelopeID string // returned in delivery reports by servers that can (RFC 3461, section 4.4)
	Data       []byte
}

// Dialer opens outgoing connections; it refuses addresses that the operator did not allow.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Outcome is what became of the recipients of one mail. A recipient in neither list has it when there was no error.
type Outcome struct {
	Text    string    // what the peer said to the mail
	Refused []Refusal // for good
	Later   []Refusal // to be tried again, without the others
}

// Refusal is the answer to one recipient.
type Refusal struct {
	Address string
	Answer  *smtp.SMTPError
}

// Status returns the enhanced status of the answer (RFC 3463), "5.0.0" where it has none.
func (r Refusal) Status() string {
	if r.Answer == nil || !hasEnhanced(r.Answer) {
		return "5.0.0"
	}
	return enhancedText(r.Answer)
}

// Reason returns the answer in one line: its codes and its text.
func (r Refusal) Reason() string { return codeText(r.Answer) }

// WhoRefused returns who does not have the mail and never will.
func (o Outcome) WhoRefused() map[string]string {
	if len(o.Refused) == 0 {
		return nil
	}
	who := map[string]string{}
	for _, one := range o.Refused {
		who[strings.ToLower(one.Address)] = message.Clip(one.Reason(), 300)
	}
	return who
}

// Detail is the line that the operator reads.
func (o Outcome) Detail() string {
	text := o.Text
	if len(o.Refused) > 0 {
		var who []string
		for _, one := range o.Refused {
			who = append(who, one.Address+" ("+message.Clip(one.Answer.Message, 100)+")")
		}
		text += "; refused: " + strings.Join(who, "; ")
	}
	return text
}

// dead reports whether the failure is the connection's and not an answer to this mail.
func dead(err error) bool {
	var refusal *smtp.SMTPError
	return !errors.As(err, &refusal) || refusal.Code == 421
}

// setupError is trouble before a mail was offered: it says nothing about the mail, whatever its code.
type setupError struct{ cause error }

func (e *setupError) Error() string { return "open session: " + e.cause.Error() }
func (e *setupError) Unwrap() error { return e.cause }

// classed reports whether a failure is worth repeating: 5xx about this mail is final, everything else is not. Trouble with
// the session itself (login, TLS, greeting) is for an operator to repair and must not cost a reply. who leads the reason.
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
		text := message.Clip(setup.cause.Error(), 400)
		return fault.RetryIn(0, who+": "+text, told{text, err})
	case !errors.As(err, &refusal):
		text := message.Clip(err.Error(), 400)
		return fault.RetryIn(0, who+": "+text, told{text, err})
	}

	text := message.Clip(codeText(refusal), 480)
	if refusal.Code/100 == 5 && !manyRecipients(refusal) && !aboutLogin(refusal.Code) {
		return fault.GiveUp(who+": "+text, told{text, err})
	}

	return fault.RetryIn(0, who+": "+text, told{text, err})
}

// told is a failure in the words that an operator reads, so that those of the library, which say the same, do not follow them.
type told struct {
	text  string
	cause error
}

func (t told) Error() string { return t.text }
func (t told) Unwrap() error { return t.cause }

// manyRecipients reads 552 as older servers mean it when they answer RCPT (RFC 5321, section 4.5.3.1.10), unless it says
// itself that the mail or the mailbox is what is too large.
func manyRecipients(answer *smtp.SMTPError) bool {
	switch answer.EnhancedCode {
	case smtp.EnhancedCode{5, 3, 4}, smtp.EnhancedCode{5, 2, 2}, smtp.EnhancedCode{5, 2, 3}:
		return false
	}
	return answer.Code == 552
}

// aboutLogin reports whether the server wants TLS or a login first (RFC 4954, section 6; RFC 3207, section 4).
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

// AnswerIn finds what the peer said; nil when it said nothing.
func AnswerIn(err error) *smtp.SMTPError {
	var answer *smtp.SMTPError
	errors.As(err, &answer)
	return answer
}
