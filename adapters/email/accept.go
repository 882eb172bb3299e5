package email

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/emersion/go-smtp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/message"
	"inbox/adapters/email/text"
	"inbox/exchange"
	"inbox/internal/fault"
)

var metricReceived = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_email_received_total", Help: "Incoming mail transactions by result."},
	[]string{"result"}) // accepted, deferred (4xx), refused (5xx)

// maxReceived is how many hops a mail may have behind it (RFC 5321, section 6.3).
const maxReceived = 50

// inbox takes mails in: it checks them, verifies their senders, and hands a message to each recipient.
type inbox struct {
	*site
	verifier   *verifier
	reporter   *reporter
	recipients *recipients
}

func resultOfCode(code int) string {
	if code/100 == 4 {
		return "deferred"
	}
	return "refused"
}

// accept checks, authenticates and hands over one mail. nil means that every recipient's copy is durable. proven reports whether its sender was, to one of them.
func (i *inbox) accept(ctx context.Context, env envelope, mail []byte) (proven bool, err error) {
	if onlyReports(env) {
		return false, i.reporter.accept(ctx, env, mail)
	}

	fields, body, from, err := inspect(mail, i.options.AllowPrivate)
	if errors.Is(err, message.ErrDamaged) {
		if mail, err = message.Mend(mail); err == nil {
			fields, body, from, err = inspect(mail, i.options.AllowPrivate)
		}
	}
	if err != nil {
		return false, &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "Malformed mail: " + message.Clean(err.Error(), 200)}
	}

	if len(fields.All("Received")) > maxReceived {
		return false, &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 4, 6}, Message: "Too many hops, this mail is in a loop"}
	}

	if i.keepsOut(env, from) {
		return false, answer(550, smtp.EnhancedCode{5, 7, 1}, "This server does not take mail from you")
	}

	sender, err := i.verifier.verify(ctx, env, from, fields, mail)
	if err != nil {
		return false, err
	}

	arrived := newArrival(env, fields, body, mail)
	arrived.sender = sender
	if sender.verified() && i.hiddenByTrouble(arrived) {
		if err := i.verifier.putOff(mail); err != nil {
			return false, err
		}
	}

	proven = sender.verified() && i.meantForAny(arrived)
	if most := i.options.MaxUnprovenBytes; most > 0 && int64(len(mail)) > most && !proven {
		return false, i.tooLargeUnproven()
	}

	return proven, i.handOver(ctx, arrived)
}

// tooLargeUnproven is the refusal of a mail that only a proven sender may send (RFC 5321, section 4.2.3; RFC 3463, X.3.4).
func (i *inbox) tooLargeUnproven() *smtp.SMTPError {
	return answer(552, smtp.EnhancedCode{5, 3, 4}, fmt.Sprintf("A mail without a valid proof of its sender (DMARC) may have %d bytes here", i.options.MaxUnprovenBytes))
}

// keepsOut asks the operator's lists before any lookup. Mail to the operator alone passes: a sender who was blocked by mistake
// can say so (RFC 5321, section 4.5.1).
func (i *inbox) keepsOut(env envelope, from message.Mailbox) bool {
	toAgent := slices.ContainsFunc(env.recipients, func(r recipient) bool { return r.agent != "" })
	if i.options.Refuses == nil || !toAgent {
		return false
	}
	return i.options.Refuses(from.Address()) || env.from != "" && i.options.Refuses(env.from)
}

// arrival is one authenticated mail on its way to its recipients.
type arrival struct {
	env    envelope
	fields message.Header
	body   []byte
	mail   []byte // exactly as received, unless its header was damaged: see message.Mend
	sender verdict
	files  exchange.Contents // that are too large for a message

	known *reading
}

// reading is what was read of a mail and is asked for again.
type reading struct {
	listed map[string][]message.Mailbox // by the name of the field
	digest string
	marks  map[string][]mark // by agent: lists are wanted by some
}

func newArrival(env envelope, fields message.Header, body, mail []byte) *arrival {
	return &arrival{env: env, fields: fields, body: body, mail: mail, known: &reading{listed: map[string][]message.Mailbox{}}}
}

// addresses returns the mailboxes in all fields of one name.
func (a *arrival) addresses(name string) []message.Mailbox {
	boxes, read := a.known.listed[name]
	if !read {
		boxes = a.fields.Addresses(name)
		a.known.listed[name] = boxes
	}
	return boxes
}

// bodyDigest is the same for all bodies that one relaxed signature covers (RFC 6376, section 3.4.4).
func (a *arrival) bodyDigest() string {
	if a.known.digest == "" {
		sum := authentication.RelaxedBodyHash(a.body)
		a.known.digest = hex.EncodeToString(sum[:])
	}
	return a.known.digest
}

// inspect refuses what different software would read differently, before anything else looks at the mail.
func inspect(mail []byte, allowPrivate bool) (message.Header, []byte, message.Mailbox, error) {
	if err := checkLines(mail); err != nil {
		return nil, nil, message.Mailbox{}, err
	}

	fields, body, err := message.Split(mail)
	if err != nil {
		return nil, nil, message.Mailbox{}, err
	}

	from, err := message.ParseFrom(fields)
	if err != nil {
		return nil, nil, message.Mailbox{}, err
	}

	if !allowPrivate && !strings.Contains(from.Domain, ".") {
		return nil, nil, message.Mailbox{}, fmt.Errorf("the From domain %q has only one label", from.Domain)
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

// handOver delivers the mail to each recipient. A temporary failure of one puts off the whole mail: its sender
// repeats it, and those who have it already recognise it. That way no copy is lost and none is duplicate. SMTP has one answer for
// all recipients, so a mail that one of them refuses for good is refused, in words that say who has it: the sender's server then
// tells the sender. A bounce of ours could only go to an
// unproven address.
func (i *inbox) handOver(ctx context.Context, mail *arrival) error {
	var accepted []string
	var deferred error
	var refused refusals
	mail.files = exchange.Contents{}
	shared, err := text.Read(ctx, mail.fields, mail.body, len(mail.mail), mail.files)
	if err != nil {
		return err
	}

	for _, to := range operatorLast(mail.env.recipients) {
		if to.agent == "" && deferred != nil {
			break // the operator's copy waits for the repeat
		}
		switch err := i.acceptFor(ctx, mail, shared, to); {
		case err == nil:
			accepted = append(accepted, to.envelope)
		case temporary(err):
			deferred = err
		default:
			refused = append(refused, refusal{to.envelope, err})
		}
	}

	if deferred != nil {
		return deferred
	}

	return refused.answer(accepted)
}

// refusal is why a recipient does not get a mail.
type refusal struct {
	recipient string
	cause     error
}

type refusals []refusal

// answer returns the one answer for all recipients of a mail; accepted are those who have it.
func (r refusals) answer(accepted []string) error {
	switch {
	case len(r) == 0:
		return nil
	case len(r) == 1 && len(accepted) == 0:
		return r[0].cause
	}

	said := smtpError(r[0].cause)
	var parts []string
	if len(accepted) > 0 {
		parts = append(parts, "Delivered to "+strings.Join(accepted, ", ")+", do not send it there again")
	}
	for _, one := range r {
		parts = append(parts, "Refused for "+one.recipient+": "+smtpError(one.cause).Message)
	}
	return answer(said.Code, said.EnhancedCode, strings.Join(parts, "; "))
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

func (i *inbox) acceptFor(ctx context.Context, mail *arrival, shared text.Content, to recipient) error {
	if to.bounce != nil {
		return i.reporter.bounced(ctx, mail, to)
	}

	mail, err := i.forRecipient(ctx, mail, to)
	if err != nil {
		return err
	}

	if _, err := i.reporter.reported(ctx, mail); err != nil {
		return err
	}

	if to.agent == "" {
		i.reporter.alive(ctx, mail)
		return i.keepForOperator(ctx, mail, shared, to)
	}
	return i.handToAgent(ctx, mail, shared, to)
}

func (i *inbox) handToAgent(ctx context.Context, mail *arrival, shared text.Content, to recipient) error {
	in, err := i.normalize(ctx, mail, shared, to)
	if err != nil {
		return err
	}

	switch err = i.receive(ctx, mail, to, in); {
	case err != nil && !temporary(err):
		i.reporter.alive(ctx, mail)
	case err == nil && i.options.Alive != nil && mail.sender.verified():
		i.options.Alive(ctx, mail.sender.from.Domain)
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
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: message.Clean(text, 400)}
}

func replyLine(e *smtp.SMTPError) string {
	return fmt.Sprintf("%d %d.%d.%d %s\r\n", e.Code, e.EnhancedCode[0], e.EnhancedCode[1], e.EnhancedCode[2], e.Message)
}

// explain turns a failure into the answer for the peer; what is ours to repair goes to the log with its cause.
func (s *session) explain(err error) error {
	refusal := smtpError(err)
	if refusal.Code == 451 && !errors.As(err, new(*smtp.SMTPError)) {
		s.server.log.Error("mail deferred because of a failure here", "session", s.transaction().id, "error", err)
	}
	return s.refuse(refusal.Code, refusal.EnhancedCode, refusal.Message)
}
