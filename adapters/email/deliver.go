package email

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/emersion/go-smtp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/bounce"
	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
	"inbox/adapters/email/outbound"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
)

// outbox brings answers to the servers of their recipients, or keeps them for the operator.
type outbox struct {
	*site
	tokens   *bounce.Tokens
	renderer *renderer
	signer   *authentication.Signer
	reporter *reporter
	sender   transport // nil in mode capture
}

// transport offers a finished mail to other servers.
type transport interface {
	Send(ctx context.Context, mail outbound.Mail) (outbound.Outcome, error)
	Close()
}

func (s *site) newTransport(resolver *dns.Resolver, listener *smtpServer) (transport, error) {
	o := s.options
	switch o.Mode {
	case ModeSmarthost:
		return outbound.NewSmarthost(outbound.SmarthostOptions{URL: o.Smarthost, Hostname: o.Hostname, Dialer: o.Dialer, TLS: o.SmarthostTLS, Relaxed: o.AllowPrivate})
	case ModeMX:
		return outbound.NewDirect(outbound.DirectOptions{
			Domain: s.domain, Hostname: o.Hostname, Port: o.MXPort, Dialer: o.Dialer, TLS: o.MXTLS, Resolver: resolver, SecureDNS: o.SecureDNS,
			Policies: o.Policies, State: o.State, Own: listener.Addr, Neighbour: listener.neighbour, Now: s.now, Logger: s.log,
		})
	}

	return nil, fmt.Errorf("mail.mode: %q is unknown; use %q, %q or %q", o.Mode, ModeCapture, ModeSmarthost, ModeMX)
}

var metricDelivered = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_email_delivered_total", Help: "Attempts to send a reply by result."},
	[]string{"result"}) // delivered, retry, gave_up

// maxExtraRecipients bounds whom one answer reaches beside its asker: as many as one mail may have here.
const maxExtraRecipients = maxRecipients

// destination is the adapter's note about one domain of a reply.
type destination struct {
	Recipients []string `json:"recipients"` // envelope addresses
}

func readDestination(data json.RawMessage) (to destination, err error) {
	return to, json.Unmarshal(data, &to)
}

// send offers a mail to its recipients. Each has a return path of its own, and so a transaction of its own, because a report to it may
// speak about no one else. A further recipient costs no signature and mostly no connection.
func (o *outbox) send(ctx context.Context, delivery exchange.Delivery, local string, recipients []string, data []byte) (outbound.Outcome, error) {
	if o.sender == nil || len(recipients) == 1 {
		return o.transact(ctx, o.mailTo(delivery, local, recipients, data), delivery)
	}

	var all outbound.Outcome
	var last error
	taken := 0
	for i := range recipients {
		result, err := o.transact(ctx, o.mailTo(delivery, local, recipients[i:i+1], data), delivery)
		answer := outbound.AnswerIn(err)
		switch {
		case err == nil:
			taken, all.Text = taken+1, result.Text
			continue
		case answer == nil || answer.Code == 421: // the others would fare no better now
			if i == 0 {
				return all, err
			}
			all.Later = append(all.Later, waiting(recipients[i:], err)...)
		case fault.Of(err).Permanent:
			all.Refused = append(all.Refused, outbound.Refusal{Address: recipients[i], Answer: answer})
		default:
			all.Later = append(all.Later, outbound.Refusal{Address: recipients[i], Answer: answer})
		}

		if last = err; taken+len(all.Refused)+len(all.Later) == len(recipients) {
			break
		}
	}

	switch {
	case taken > 0:
		return all, nil
	case len(all.Later) > 0 && fault.Of(last).Permanent:
		last = fault.RetryIn(0, all.Later[0].Address+": "+all.Later[0].Reason(), exchange.WithReach(all.Later[0].Answer, exchange.ReachRecipient))
	}
	return all, last
}

// mailTo is the mail for recipients, with the return path of the first of them.
func (o *outbox) mailTo(delivery exchange.Delivery, local string, recipients []string, data []byte) outbound.Mail {
	token, from := o.tokens.ReturnPath(delivery.ID, addressKey(recipients[0]))
	return outbound.Mail{
		From: cmp.Or(from, local+"@"+o.domain), Recipients: recipients, Domain: delivery.Destination.Key, EnvelopeID: token, Data: data,
	}
}

// transact offers a mail in one transaction. Where nothing leaves, one mail is kept for all recipients.
func (o *outbox) transact(ctx context.Context, mail outbound.Mail, delivery exchange.Delivery) (outbound.Outcome, error) {
	if o.sender == nil {
		return o.capture(ctx, delivery, mail)
	}
	result, err := o.sender.Send(ctx, mail)
	if err == nil {
		o.rememberRelayed(ctx, delivery, result)
	}
	return result, err
}

// waiting are recipients to whom the mail was not offered because the session failed.
func waiting(recipients []string, cause error) []outbound.Refusal {
	answer := outbound.AnswerIn(cause)
	if answer == nil {
		answer = &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 4, 2}, Message: fault.Of(cause).Public}
	}

	list := make([]outbound.Refusal, 0, len(recipients))
	for _, recipient := range recipients {
		list = append(list, outbound.Refusal{Address: recipient, Answer: answer})
	}
	return list
}

// capture keeps a mail instead of sending it.
func (o *outbox) capture(ctx context.Context, delivery exchange.Delivery, mail outbound.Mail) (outbound.Outcome, error) {
	kept, err := o.capturedMail(ctx, delivery, mail.From, mail.Domain, mail.Recipients, mail.Data)
	if err != nil {
		return outbound.Outcome{}, err
	}
	return outbound.Outcome{Text: "captured, not sent (mail.mode = capture)"}, o.options.Mailbox.Keep(ctx, kept)
}

// audience is who a reply goes to.
type audience struct {
	to, cc  []message.Mailbox
	refused []string // addresses that the agent named and that were left out
}

func (o audience) all() []message.Mailbox { return slices.Concat(o.to, o.cc) }

// Plan returns the Message-ID and one destination per recipient domain. It is pure.
func (o *outbox) Plan(_ context.Context, reply exchange.Reply) (exchange.Plan, error) {
	notes, ok := readRoute(reply.Route)
	if !ok {
		return exchange.Plan{}, fault.GiveUp("the note on how to answer this mail cannot be read", nil)
	}

	people := o.audience(reply, notes)
	var plan exchange.Plan
	plan.NativeID = o.renderer.replyID(reply)
	byDomain := map[string][]string{}
	var domains []string
	for _, box := range people.all() {
		if byDomain[box.Domain] == nil {
			domains = append(domains, box.Domain)
		}
		byDomain[box.Domain] = append(byDomain[box.Domain], box.Address())
	}

	for _, domain := range domains {
		data, err := json.Marshal(destination{Recipients: byDomain[domain]})
		if err != nil {
			return exchange.Plan{}, fmt.Errorf("encode destination: %w", err)
		}
		plan.Destinations = append(plan.Destinations, exchange.Destination{Key: domain, Address: strings.Join(byDomain[domain], ", "), Data: data})
	}

	return plan, nil
}

// replyID is the Message-ID of a reply without brackets; it follows from the reply alone, so a repeat has the same.
func (w *renderer) replyID(reply exchange.Reply) string { return reply.ID + "@" + w.domain }

// audience answers the sender, and others only where that is safe: named by the agent, part of the conversation
// (or allowed by the operator), never at our own domain, never for unverified mail or a policy answer, which
// carries secrets for the asker alone. Those go elsewhere than to the proven address only where its own signature says
// so: a Reply-To of the same organization may be any customer of a large provider. An answer to all goes to To and Cc as well,
// unless it is private.
func (o *outbox) audience(reply exchange.Reply, notes route) audience {
	demand := hasPolicy(reply.Response)
	asker := notes.From
	if notes.ReplyTo != nil && (!reply.Confidential() || notes.ReplySigned) {
		asker = *notes.ReplyTo
	}

	people := audience{to: []message.Mailbox{asker}}
	seen := map[string]bool{asker.Key(): true}
	private := !notes.Verified || demand
	add := func(list []message.Mailbox, addresses []string) []message.Mailbox {
		for _, text := range addresses {
			box, err := message.ParseMailbox(strings.TrimPrefix(strings.TrimPrefix(text, "mailto:"), "@"))
			box.Name = notes.nameOf(box)
			switch {
			case err == nil && seen[box.Key()]:
			case err == nil && slices.Contains(notes.Lists, box.Key()):
				people.refused = append(people.refused, box.Address())
			case err != nil || private || box.Domain == o.domain || o.aliasOf(box) != "" || len(seen) > maxExtraRecipients || !o.mayWrite(box, notes):
				people.refused = append(people.refused, message.Clean(text, identity.MaxAddressBytes))
			default:
				seen[box.Key()] = true
				list = append(list, box)
			}
		}
		return list
	}

	people.to = add(people.to, reply.Response.To)
	people.cc = add(people.cc, reply.Response.Cc)
	if notes.ReplyAll && !private && !reply.Private() {
		people.cc = add(people.cc, writtenAddresses(slices.Concat(notes.To, notes.Cc)))
	}

	return people
}

func writtenAddresses(boxes []message.Mailbox) []string {
	addresses := make([]string, 0, len(boxes))
	for _, box := range boxes {
		addresses = append(addresses, box.Address())
	}
	return addresses
}

// nameOf returns what the question calls an address.
func (r route) nameOf(box message.Mailbox) string {
	for _, known := range slices.Concat([]message.Mailbox{r.From}, r.To, r.Cc) {
		if known.Key() == box.Key() {
			return known.Name
		}
	}
	return ""
}

func (o *outbox) mayWrite(box message.Mailbox, notes route) bool {
	if o.options.AllowNewRecipients || box.Key() == notes.From.Key() {
		return true
	}
	for _, known := range slices.Concat(notes.To, notes.Cc) {
		if known.Key() == box.Key() {
			return true
		}
	}
	return false
}

// Deliver renders, signs and sends a reply to one destination.
func (o *outbox) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	receipt, err := o.deliver(ctx, delivery)
	switch found := fault.Of(err); {
	case err == nil:
		metricDelivered.WithLabelValues("delivered").Inc()
	case found.Permanent:
		metricDelivered.WithLabelValues("gave_up").Inc()
	default:
		metricDelivered.WithLabelValues("retry").Inc()
	}

	return receipt, err
}

func (o *outbox) deliver(ctx context.Context, delivery exchange.Delivery) (receipt exchange.DeliveryReceipt, err error) {
	notes, ok := readRoute(delivery.Reply.Route)
	to, err := readDestination(delivery.Destination.Data)
	if err != nil || !ok || len(to.Recipients) == 0 {
		return receipt, fault.GiveUp("the note on where to send this mail cannot be read", err)
	}

	people := o.audience(delivery.Reply, notes)
	recipients, left, err := o.open(ctx, delivery, to.Recipients)
	if err != nil || len(recipients) == 0 {
		receipt.Detail = left
		return receipt, err
	}

	mail, err := o.finished(ctx, delivery, notes, people)
	if err != nil {
		return receipt, err
	}

	result, err := o.send(ctx, delivery, tagged(notes.Local, notes.Tag), recipients, mail.data)
	o.reporter.learn(ctx, delivery, recipients, result, err)
	if err == nil && len(result.Later) > 0 {
		receipt.Refused = result.WhoRefused()
		receipt.Done, err = partly(to.Recipients, result)
	}
	if err != nil {
		return receipt, o.keepForRepeat(ctx, delivery, mail, err)
	}

	detail := result.Detail() + left
	if len(people.refused) > 0 {
		detail += "; left out: " + strings.Join(people.refused, ", ")
	}

	if notes.Unfollowed != "" {
		detail += "; answered to From: the Reply-To " + notes.Unfollowed + " is not followed (mail.reply_to)"
	}

	return exchange.DeliveryReceipt{Detail: message.Clip(detail, 512), Refused: result.WhoRefused()}, nil
}

// ReplyIDOf returns the id of the reply that a Message-ID of ours was made from, and the domain behind it.
func ReplyIDOf(messageID string) (replyID, domain string) {
	at := strings.LastIndexByte(messageID, '@')
	if at < 0 {
		return "", ""
	}
	return messageID[:at], messageID[at+1:]
}

const (
	repeatNamespace = "email/outgoing"
	repeatLife      = authentication.SignatureLife / 2 // a kept mail ends before its signature does
	maxStateBytes   = 64 << 10                         // larger mails go to the blob store
)

// finishedMail is a signed mail.
type finishedMail struct {
	data []byte
	kept bool // it is in State already
}

// keptMail is a signed mail in State.
type keptMail struct {
	Data []byte `json:"data,omitempty"`
	Blob string `json:"blob,omitempty"` // where Data is when it is large
	Size int64  `json:"size"`
}

// finished returns the signed mail of a delivery: the one that was offered before, or a new one. All destinations of a reply
// get the same mail; only the times of its signatures differ.
func (o *outbox) finished(ctx context.Context, delivery exchange.Delivery, notes route, people audience) (finishedMail, error) {
	if delivery.Repeated {
		if data, found, err := o.offeredBefore(ctx, delivery.Reply.ID); err != nil || found {
			return finishedMail{data, true}, err
		}
	}

	mail, err := o.renderer.render(ctx, delivery.Reply, notes, people)
	if err != nil {
		return finishedMail{}, err
	}

	signed, err := o.signer.Sign(mail)
	if err != nil {
		return finishedMail{}, fault.GiveUp("the mail cannot be signed", err)
	}

	return finishedMail{data: signed}, nil
}

func (o *outbox) offeredBefore(ctx context.Context, replyID string) ([]byte, bool, error) {
	value, found, err := o.options.State.Get(ctx, repeatNamespace, replyID)
	if err != nil || !found {
		return nil, false, err
	}

	var kept keptMail
	if err := json.Unmarshal(value, &kept); err != nil {
		return nil, false, fmt.Errorf("decode mail: %w", err)
	}

	if kept.Blob == "" {
		return kept.Data, true, nil
	}

	data, err := readBlob(ctx, o.options.Blobs, kept.Blob, kept.Size+1)
	if fault.Is(err, fault.NotFound) {
		return nil, false, nil
	}

	return data, err == nil, err
}

// keepForRepeat stores the bytes of a mail whose attempt will be repeated, so that neither another key nor another
// configuration changes them. It returns the error of the attempt. Nothing is stored for a mail that its server accepts at
// once: after a crash in that attempt the mail is rendered again with the same header and body and a later signature time,
// and its receiver recognises it by its Message-ID.
func (o *outbox) keepForRepeat(ctx context.Context, delivery exchange.Delivery, mail finishedMail, cause error) error {
	if mail.kept || fault.Of(cause).Permanent || ctx.Err() != nil {
		return cause
	}

	kept := keptMail{Data: mail.data, Size: int64(len(mail.data))}
	if len(mail.data) > maxStateBytes {
		digest, _, err := o.options.Blobs.Put(ctx, bytes.NewReader(mail.data))
		if err != nil {
			o.log.WarnContext(ctx, "a mail could not be stored for its repeat and will be rendered again", "reply", delivery.Reply.ID, "error", err)
			return cause
		}
		kept.Data, kept.Blob = nil, digest
	}

	value, err := json.Marshal(kept)
	if err == nil {
		_, _, err = o.options.State.PutIfAbsent(ctx, repeatNamespace, delivery.Reply.ID, value, o.now().Add(repeatLife))
	}
	if err != nil {
		o.log.WarnContext(ctx, "a mail could not be stored for its repeat and will be rendered again", "reply", delivery.Reply.ID, "error", err)
	}

	return cause
}

// open returns the recipients who are to be tried: not those who have the mail or refused it, and not those that are
// suppressed. left names who is missing. No one left is an error, unless one of them has the mail.
func (o *outbox) open(ctx context.Context, delivery exchange.Delivery, all []string) (recipients []string, left string, err error) {
	recipients = slices.DeleteFunc(slices.Clone(all), func(address string) bool { return slices.Contains(delivery.Done, address) })
	suppressed, err := o.reporter.suppressed(ctx, recipients)
	if err != nil {
		return nil, "", err
	}

	for _, one := range suppressed {
		recipients = slices.DeleteFunc(recipients, func(address string) bool { return addressKey(address) == one.Address })
		left += "; not sent to " + one.Address + ", which is suppressed: " + one.Reason
	}

	if len(recipients) == 0 && len(delivery.Done) == 0 {
		return nil, "", fault.GiveUp(message.Clip("suppressed: "+suppressed[0].Address+": "+suppressed[0].Reason+" (lift it with: inbox suppressions remove "+suppressed[0].Address+")", 500), nil)
	}

	return recipients, left, nil
}

// partly returns who needs no further attempt, so that only the others are tried again, and the error that says why.
func partly(all []string, result outbound.Outcome) (done []string, err error) {
	later := addressesOf(result.Later)
	done = slices.DeleteFunc(slices.Clone(all), func(address string) bool { return slices.Contains(later, address) })
	last := result.Later[len(result.Later)-1]
	return done, fault.RetryIn(0, message.Clip(fmt.Sprintf("taken for %d of %d; %s: %s", len(done), len(all), last.Address, last.Reason()), 480), exchange.WithReach(last.Answer, exchange.ReachRecipient))
}

func addressesOf(list []outbound.Refusal) []string {
	addresses := make([]string, 0, len(list))
	for _, one := range list {
		addresses = append(addresses, one.Address)
	}
	return addresses
}

// Open begins a conversation of an agent with a mailbox: the route of a reply that answers no mail. An answer to it joins its
// conversation. Without a subject the subject says that the agent needs a decision. Errors are classed with fault.GiveUp.
func (o *outbox) Open(_ context.Context, agent, address, subject string) (json.RawMessage, error) {
	profile, known := o.options.Agents.Agent(agent)
	if !known {
		return nil, fault.GiveUp("there is no agent "+agent, nil)
	}

	box, err := o.elsewhere(strings.TrimPrefix(strings.TrimPrefix(address, "mailto:"), "@"))
	if err != nil {
		return nil, err
	}

	notes, err := json.Marshal(route{
		Version: 1, Local: strings.ToLower(profile.Name), From: box, To: []message.Mailbox{box}, Verified: true, Opened: true,
		Subject: cmp.Or(subject, cmp.Or(message.DisplayName(profile.DisplayName), profile.Name)+" needs a decision"),
	})
	if err != nil {
		return nil, fmt.Errorf("encode route: %w", err)
	}

	return notes, nil
}

// elsewhere reads the address of a mailbox that is not one of this server.
func (o *outbox) elsewhere(address string) (message.Mailbox, error) {
	box, err := message.ParseMailbox(address)
	switch {
	case err != nil:
		return box, fault.GiveUp("the address is no mailbox", err)
	case box.Domain == o.domain, o.aliasOf(box) != "":
		return box, fault.GiveUp("the mailbox is one of this server", nil)
	}
	return box, nil
}

// OpenForward begins a mail by which one that came to a role address is sent on: its author is that address, so that it passes our own DMARC,
// and the mail is attached to it whole. Errors are classed with fault.GiveUp.
func (o *outbox) OpenForward(local, address, subject string) (json.RawMessage, error) {
	box, err := o.elsewhere(address)
	if err != nil {
		return nil, err
	}

	notes, err := json.Marshal(route{
		Version: 1, Local: local, From: box, To: []message.Mailbox{box}, Verified: true, Opened: true, Forward: true,
		Subject: "Fwd: " + cmp.Or(message.Clean(subject, 700), "mail without a subject"),
	})
	if err != nil {
		return nil, fmt.Errorf("encode route: %w", err)
	}
	return notes, nil
}
