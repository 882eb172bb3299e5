package email

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/emersion/go-smtp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
)

var metricReceived = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_email_received_total", Help: "Incoming mail transactions by result."},
	[]string{"result"}) // accepted, deferred (4xx), refused (5xx)

func resultOfCode(code int) string {
	if code/100 == 4 {
		return "deferred"
	}
	return "refused"
}

// accept checks, authenticates and hands over one mail. nil means that every recipient's copy is durable or was
// refused for good while another one's was accepted. proven says whether its sender was.
func (a *Adapter) accept(ctx context.Context, env envelope, mail []byte) (proven bool, err error) {
	if onlyReports(env) {
		return false, a.acceptReport(ctx, env, mail)
	}
	fields, body, from, err := inspect(mail, a.options.AllowPrivate)
	if err != nil {
		return false, &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "Malformed mail: " + cleanText(err.Error(), 200)}
	}
	if len(fields.all("Received")) > maxReceived {
		return false, &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 4, 6}, Message: "Too many hops, this mail is in a loop"}
	}
	if a.keepsOut(env, from) {
		return false, answer(550, smtp.EnhancedCode{5, 7, 1}, "This server does not take mail from you")
	}
	sender, err := a.verify(ctx, env, from, fields, mail)
	if err != nil {
		return false, err
	}
	if most := a.options.MaxUnprovenBytes; most > 0 && int64(len(mail)) > most && !sender.verified() {
		return false, a.tooLargeUnproven()
	}
	return sender.verified(), a.handOver(ctx, &arrival{env: env, fields: fields, body: body, mail: mail, sender: sender})
}

// tooLargeUnproven says that only a sender who is proven may send so much (RFC 5321, section 4.2.3; RFC 3463, X.3.4).
func (a *Adapter) tooLargeUnproven() *smtp.SMTPError {
	return answer(552, smtp.EnhancedCode{5, 3, 4}, fmt.Sprintf("A mail without a valid proof of its sender (DMARC) may have %d bytes here", a.options.MaxUnprovenBytes))
}

// keepsOut asks the operator's lists before any lookup. Mail to the operator alone passes: whoever was blocked by mistake
// can say so (RFC 5321, section 4.5.1).
func (a *Adapter) keepsOut(env envelope, from mailbox) bool {
	toAgent := slices.ContainsFunc(env.recipients, func(r recipient) bool { return r.agent != "" })
	if a.options.Refuses == nil || !toAgent {
		return false
	}
	return a.options.Refuses(from.address()) || env.from != "" && a.options.Refuses(env.from)
}

// arrival is one authenticated mail on its way to its recipients.
type arrival struct {
	env    envelope
	fields header
	body   []byte
	mail   []byte // exactly as received
	sender verdict
}

// inspect refuses what different software would read differently, before anything else looks at the mail.
func inspect(mail []byte, allowPrivate bool) (header, []byte, mailbox, error) {
	if err := checkLines(mail); err != nil {
		return nil, nil, mailbox{}, err
	}
	fields, body, err := splitHeader(mail)
	if err != nil {
		return nil, nil, mailbox{}, err
	}
	from, err := parseFrom(fields)
	if err != nil {
		return nil, nil, mailbox{}, err
	}
	if !allowPrivate && !strings.Contains(from.Domain, ".") {
		return nil, nil, mailbox{}, fmt.Errorf("the From domain %q has only one label", from.Domain)
	}
	return fields, body, from, nil
}

var errLineEnds = errors.New("line ends must be CRLF: a lone CR, a lone LF or a NUL was found")

// checkLines refuses lone CR, lone LF and NUL: they are how mails are smuggled and signatures made ambiguous.
func checkLines(mail []byte) error {
	if bytes.IndexByte(mail, 0) >= 0 {
		return errLineEnds
	}
	lines, ends := bytes.Count(mail, []byte("\n")), bytes.Count(mail, []byte("\r\n"))
	if lines != ends || bytes.Count(mail, []byte("\r")) != ends {
		return errLineEnds
	}
	return nil
}

// handOver gives the mail to each recipient. A temporary failure of one puts off the whole mail: its sender
// repeats it, and those who have it already recognise it. That way nobody's copy is lost and nobody gets two.
func (a *Adapter) handOver(ctx context.Context, mail *arrival) error {
	accepted := false
	var deferred, refused error
	shared, err := a.content(ctx, mail)
	if err != nil {
		return err
	}
	for _, to := range operatorLast(mail.env.recipients) {
		if to.agent == "" && deferred != nil {
			break // the operator's copy has no id to be recognised by: it waits for the repeat
		}
		switch err := a.giveTo(ctx, mail, shared, to); {
		case err == nil:
			accepted = true
		case temporary(err):
			deferred = err
		default:
			refused = err
		}
	}
	if deferred != nil {
		return deferred
	}
	if accepted {
		return nil
	}
	return refused
}

func operatorLast(recipients []recipient) []recipient {
	sorted := slices.Clone(recipients)
	slices.SortStableFunc(sorted, func(a, b recipient) int {
		switch {
		case (a.agent == "") == (b.agent == ""):
			return 0
		case a.agent == "":
			return 1
		}
		return -1
	})
	return sorted
}

func (a *Adapter) giveTo(ctx context.Context, mail *arrival, shared content, to recipient) error {
	if to.bounce != "" {
		return a.bounced(ctx, mail, to)
	}
	if _, err := a.reported(ctx, mail); err != nil {
		return err
	}
	if to.agent == "" {
		return a.keepForOperator(ctx, mail, to)
	}
	in, err := a.normalize(ctx, mail, shared, to)
	if err != nil {
		return err
	}
	if err = a.receive(ctx, mail, to, in); err == nil && a.options.Alive != nil && mail.sender.verified() {
		a.options.Alive(ctx, mail.sender.from.Domain)
	}
	return err
}

func temporary(err error) bool { return smtpError(err).Code/100 == 4 }

// smtpError maps a failure to the answer of the message contract, section 12.
func smtpError(err error) *smtp.SMTPError {
	if given, ok := errors.AsType[*smtp.SMTPError](err); ok {
		return given
	}
	found := fault.Of(err)
	switch found.Kind {
	case fault.Malformed:
		text := found.Public
		if found.Field != "" {
			text = found.Field + ": " + text
		}
		return answer(554, smtp.EnhancedCode{5, 6, 0}, text)
	case fault.Unsupported, fault.Conflict:
		return answer(554, smtp.EnhancedCode{5, 6, 0}, found.Public)
	case fault.TooLarge:
		return answer(552, smtp.EnhancedCode{5, 3, 4}, found.Public)
	case fault.NotFound, fault.Gone:
		return answer(550, smtp.EnhancedCode{5, 1, 1}, found.Public)
	case fault.Unauthenticated, fault.Forbidden:
		return answer(550, smtp.EnhancedCode{5, 7, 1}, found.Public)
	case fault.RateLimited:
		return answer(452, smtp.EnhancedCode{4, 7, 0}, found.Public) // message contract, section 12
	}
	return answer(451, smtp.EnhancedCode{4, 3, 0}, "Temporary trouble here, please try again later")
}

func answer(code int, enhanced smtp.EnhancedCode, text string) *smtp.SMTPError {
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: cleanText(text, 400)}
}

func replyLine(e *smtp.SMTPError) string {
	return fmt.Sprintf("%d %d.%d.%d %s\r\n", e.Code, e.EnhancedCode[0], e.EnhancedCode[1], e.EnhancedCode[2], e.Message)
}

// explain turns a failure into the answer for the peer; what is ours to repair goes to the log with its cause.
func (s *session) explain(err error) error {
	refusal := smtpError(err)
	if refusal.Code == 451 && !errors.As(err, new(*smtp.SMTPError)) {
		s.adapter.log.Error("mail put off because of a failure here", "session", s.transaction().id, "error", err)
	}
	return s.refuse(refusal.Code, refusal.EnhancedCode, refusal.Message)
}
