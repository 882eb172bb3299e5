package email

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/bounce"
	"inbox/adapters/email/message"
	"inbox/adapters/email/outbound"
	"inbox/exchange"
	"inbox/internal/fault"
)

var metricBounces = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_email_bounces_total", Help: "Reports about mails that had left, by kind (hard, soft, delayed, complaint, unmatched)."},
	[]string{"kind"})

// reporter notes what becomes of mails after they had left: by the answers of an attempt, and by reports.
type reporter struct {
	deliveries   Deliveries   // nil = reports are not noted
	suppressions Suppressions // nil = nothing is counted
	tokens       *bounce.Tokens
	checker      *authentication.Checker
	domain       string
	log          *slog.Logger
	now          func() time.Time
}

// addressKey is an address as suppressions know it.
func addressKey(address string) string { return strings.ToLower(address) }

func (r *reporter) suppressed(ctx context.Context, addresses []string) ([]exchange.Suppression, error) {
	if r.suppressions == nil || len(addresses) == 0 {
		return nil, nil
	}
	keys := make([]string, 0, len(addresses))
	for _, address := range addresses {
		keys = append(keys, addressKey(address))
	}
	return r.suppressions.Suppressed(ctx, keys)
}

// learn counts what an attempt said about its recipients.
func (r *reporter) learn(ctx context.Context, delivery exchange.Delivery, recipients []string, result outbound.Outcome, cause error) {
	for _, one := range result.Refused {
		kind := failureKind(one.Status())
		if kind != "" {
			r.failed(ctx, exchange.MailFailure{Address: addressKey(one.Address), Kind: kind, Reason: message.Clip(one.Reason(), 300), DeliveryID: delivery.ID})
		}
	}
	if found := fault.Of(cause); cause != nil && found.Permanent && domainMissing(found.Public) {
		for _, address := range recipients {
			r.failed(ctx, exchange.MailFailure{Address: addressKey(address), Kind: exchange.FailureHard, Reason: message.Clip(found.Public, 300), DeliveryID: delivery.ID})
		}
	}
}

// domainMissing finds the failures of our own lookups that are about the domain itself.
func domainMissing(reason string) bool {
	return strings.HasSuffix(reason, "(5.1.2)") || strings.HasSuffix(reason, "(5.1.10)")
}

// failureKind returns what a final status means for the address; empty = nothing, it is about the mail or about us.
func failureKind(status string) string {
	switch {
	case status == "5.1.1", status == "5.1.2", status == "5.1.10":
		return exchange.FailureHard
	case strings.HasPrefix(status, "5.7."), strings.HasPrefix(status, "5.6."), status == "5.3.4", strings.HasPrefix(status, "5.5."):
		return ""
	}
	return exchange.FailureSoft
}

// failed counts a failure of an attempt of ours. Trouble with that must not change what became of the attempt.
func (r *reporter) failed(ctx context.Context, failure exchange.MailFailure) {
	if err := r.count(ctx, failure); err != nil {
		r.log.WarnContext(ctx, "a failure of an address could not be counted", "error", err)
	}
}

// count counts a failure of an address, once for each delivery.
func (r *reporter) count(ctx context.Context, failure exchange.MailFailure) error {
	if r.suppressions == nil {
		return nil
	}

	failure.At = r.now()
	suppressed, err := r.suppressions.MailFailed(ctx, failure)
	if suppressed && err == nil {
		r.log.WarnContext(ctx, "no more mail is sent to an address after failures; see: inbox suppressions list",
			"address", failure.Address, "kind", failure.Kind, "reason", failure.Reason)
	}

	return err
}

func onlyReports(env envelope) bool {
	return len(env.recipients) > 0 && !slices.ContainsFunc(env.recipients, func(to recipient) bool { return to.bounce == nil })
}

// accept takes a mail to bounce addresses. Their tokens say about whom it may speak: hardly a server signs its reports, and some
// name no one in From, so that the rules for other mail would lose what a strict domain sends back.
func (r *reporter) accept(ctx context.Context, env envelope, mail []byte) error {
	fields, body, err := message.SplitEnclosed(mail) // tolerant: the token proves more than any field
	if err != nil {
		return answer(554, smtp.EnhancedCode{5, 6, 0}, "Malformed mail: "+err.Error())
	}

	if len(fields.All("Received")) > maxReceived {
		return answer(554, smtp.EnhancedCode{5, 4, 6}, "Too many hops, this mail is in a loop")
	}

	arrived := newArrival(env, fields, body, mail)
	for _, to := range env.recipients {
		if err := r.bounced(ctx, arrived, to); err != nil {
			return err
		}
	}

	return nil
}

// returnPath is what a report may speak about: recipients of one delivery.
type returnPath struct {
	delivery   string
	recipients []string // in lower case
	soft       bool     // it is no token of one recipient, so nothing that is said ends mail to an address
}

// redeem finds whom a pass was given to; found is false when it was not made here, or its delivery is gone.
func (r *reporter) redeem(ctx context.Context, pass bounce.Pass) (path returnPath, found bool, err error) {
	if r.deliveries == nil {
		return path, false, nil
	}

	destination, err := r.deliveries.DestinationOf(ctx, pass.DeliveryID)
	if fault.Is(err, fault.NotFound) {
		return path, false, nil
	}
	if err != nil {
		return path, false, fmt.Errorf("find the delivery of a report: %w", err)
	}

	path = returnPath{delivery: pass.DeliveryID, recipients: recipientsOf(destination), soft: pass.Old}
	if pass.Old {
		return path, true, nil
	}
	recipient := r.tokens.RecipientOf(pass, path.recipients)
	path.recipients = []string{recipient}
	return path, recipient != "", nil
}

// bounced takes a mail that came to a bounce address: with the token everything in it is about one recipient of a delivery of ours. What
// is no report is an automatic answer, which no one reads.
func (r *reporter) bounced(ctx context.Context, mail *arrival, to recipient) error {
	report, is := bounce.Read(mail.fields, mail.body)
	if !is {
		report, is = bounce.ReadText(mail.fields, mail.body)
	}
	if !is {
		r.log.InfoContext(ctx, "an automatic answer to a sent mail was dropped", "session", mail.env.id, "delivery", to.bounce.delivery)
		return nil
	}
	return r.noteReport(ctx, mail, *to.bounce, report)
}

// reported looks for a report in a mail that came to another address of ours: it counts when it carries a token of ours,
// or when it is proven to come from the domain that it speaks about. It reports whether it did. Others are ignored: a bounce
// is easily forged.
func (r *reporter) reported(ctx context.Context, mail *arrival) (bool, error) {
	report, is := bounce.Read(mail.fields, mail.body)
	if !is || r.deliveries == nil {
		return false, nil
	}

	path, known, err := r.pathOf(ctx, mail, report)
	if err != nil {
		return false, err
	}

	if !known {
		metricBounces.WithLabelValues("unmatched").Inc()
		return false, nil
	}

	return true, r.noteReport(ctx, mail, path, report)
}

func (r *reporter) pathOf(ctx context.Context, mail *arrival, report bounce.Report) (returnPath, bool, error) {
	if pass, is := r.tokens.PassIn(report); is {
		if path, found, err := r.redeem(ctx, pass); found || err != nil {
			return path, found, err
		}
	}
	return r.byMessageID(ctx, mail, report)
}

// byMessageID finds the delivery of a report by the id of our mail. Everyone who has the mail knows it.
func (r *reporter) byMessageID(ctx context.Context, mail *arrival, report bounce.Report) (path returnPath, known bool, err error) {
	id := message.ID(report.Returned)
	if id == "" || !mail.sender.verified() || !strings.EqualFold(id[strings.LastIndexByte(id, '@')+1:], r.domain) {
		return path, false, nil
	}

	for _, one := range report.Recipients {
		address := cmp.Or(one.Original, one.Address)
		domain := domainOf(address)
		if domain == "" || !authentication.SameRegistered(domain, mail.sender.from.Domain) || !r.vouched(ctx, mail, address) {
			continue
		}

		deliveryID, known, err := r.deliveries.DeliveryOf(ctx, id, domain)
		if err != nil {
			return path, false, err
		}
		if known {
			return r.redeem(ctx, bounce.Pass{DeliveryID: deliveryID, Old: true})
		}
	}

	return path, false, nil
}

func domainOf(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

// noteReport writes a report to the delivery and counts it against its recipients. A delivery that is not known any more
// is no error: the peer must not repeat its report.
func (r *reporter) noteReport(ctx context.Context, mail *arrival, path returnPath, report bounce.Report) error {
	for _, one := range report.Recipients {
		address := one.Among(path.recipients)
		if address == "" {
			continue
		}
		if err := r.noteRecipient(ctx, mail, path, address, report.Complaint, one); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return nil
}

func (r *reporter) noteRecipient(ctx context.Context, mail *arrival, path returnPath, address string, complaint bool, one bounce.Recipient) error {
	event := exchange.Bounce{DeliveryID: path.delivery, Recipient: address}
	failure := exchange.MailFailure{Address: address, DeliveryID: path.delivery}
	switch {
	case complaint:
		event.Event, event.Reason = exchange.EventDeliveryComplaint, "reported as unwanted: "+cmp.Or(one.Diagnostic, "abuse")
		failure.Kind = exchange.FailureComplaint

	case one.Action == "failed":
		status := cmp.Or(one.Status, "5.0.0")
		event.Event, event.Reason = exchange.EventDeliveryBounced, strings.TrimSpace("bounced: "+status+" "+one.Diagnostic)
		if failure.Kind = failureKind(status); strings.HasPrefix(status, "4.") {
			failure.Kind = exchange.FailureSoft
		}

	case one.Action == "delayed":
		event.Event, event.Reason = exchange.EventDeliveryDelayed, strings.TrimSpace("delayed: "+one.Status+" "+one.Diagnostic)
	default:
		return nil // delivered, relayed, expanded: nothing went wrong
	}

	if failure.Kind != "" && (path.soft || !r.vouched(ctx, mail, address)) {
		failure.Kind, failure.Hearsay = exchange.FailureSoft, true
	}

	metricBounces.WithLabelValues(cmp.Or(failure.Kind, strings.TrimPrefix(event.Event, "delivery."))).Inc()
	r.log.WarnContext(ctx, "a sent mail bounced", "delivery", path.delivery, "recipient", address, "event", event.Event, "reason", event.Reason)
	if failure.Kind != "" {
		failure.Reason = message.Clip(event.Reason, 300)
		if err := r.count(ctx, failure); err != nil {
			return fmt.Errorf("count failure of address: %w", err) // its server sends the report again
		}
	}

	return r.deliveries.Bounced(ctx, event)
}

// vouched reports whether the organization of an address says what a report does: SPF for a peer that brings it from the null sender,
// because From of a report is often no one, or a signature of it under a name that speaks for the address. Its customers get their mail
// signed as well.
func (r *reporter) vouched(ctx context.Context, mail *arrival, address string) bool {
	peer, domain := mail.env.connection(), domainOf(address)
	found := r.checker.Check(ctx, peer, domain, mail.fields, mail.mail)
	if peer.From == "" && (found.DMARC.Envelope == authentication.Pass || r.checker.Permits(ctx, peer, domain)) {
		return true
	}

	from, err := message.ParseFrom(mail.fields)
	return err == nil && speaksFor(from, address) &&
		slices.ContainsFunc(found.DMARC.Signatures, func(signature *authentication.Signature) bool { return r.signedForUs(mail, signature) })
}

// signedForUs reports whether a signature proves that a report is one, of now, and to us. Servers sign the reports about mails of others, too, and return
// the words of those mails in them.
func (r *reporter) signedForUs(mail *arrival, signature *authentication.Signature) bool {
	toUs := func(box message.Mailbox) bool { return box.Domain == r.domain }
	return signature.Covers("to") && signature.Covers("cc") && openReading(mail.fields, signature) == "" && freshlySigned(mail, signature) == "" &&
		slices.ContainsFunc(slices.Concat(mail.addresses("To"), mail.addresses("Cc")), toUs)
}

// speaksFor reports whether a mailbox is the address itself, or one that mail servers of its organization write from (RFC 5321, section 4.5.1):
// no customer has it.
func speaksFor(from message.Mailbox, address string) bool {
	role := strings.EqualFold(from.Local, "mailer-daemon") || strings.EqualFold(from.Local, "postmaster")
	return from.Key() == message.AddressKey(address) || role && authentication.SameRegistered(from.Domain, domainOf(address))
}

// alive ends the suppression of an address from which a proven mail came that makes no turn. Where it makes one, the turn does: see
// Suppressions. So no accepted mail pays for that.
func (r *reporter) alive(ctx context.Context, mail *arrival) {
	if !mail.sender.verified() {
		return
	}

	address := addressKey(mail.sender.from.Address())
	found, err := r.suppressed(ctx, []string{address})
	if err == nil && len(found) > 0 {
		_, err = r.suppressions.Unsuppress(ctx, address)
		r.log.InfoContext(ctx, "mail is sent to an address again, from which a proven mail came", "address", address)
	}
	if err != nil {
		r.log.WarnContext(ctx, "the suppression of an address could not be ended; lift it with: inbox suppressions remove ADDRESS", "address", address, "error", err)
	}
}

// recipientsOf returns the addresses of a destination in lower case.
func recipientsOf(destination exchange.Destination) []string {
	to, err := readDestination(destination.Data)
	if err != nil {
		return nil
	}
	addresses := make([]string, 0, len(to.Recipients))
	for _, address := range to.Recipients {
		addresses = append(addresses, addressKey(address))
	}
	return addresses
}
