package email

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/message"
	"inbox/adapters/email/outbound"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
)

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

// transport offers a finished mail to other servers.
type transport interface {
	Send(ctx context.Context, mail outbound.Mail) (outbound.Outcome, error)
	Close()
}

func (a *Adapter) newTransport() (transport, error) {
	o := a.options
	switch o.Mode {
	case ModeSmarthost:
		return outbound.NewSmarthost(outbound.SmarthostOptions{URL: o.Smarthost, Hostname: o.Hostname, Dialer: o.Dialer, TLS: o.SmarthostTLS, Relaxed: o.AllowPrivate})
	case ModeMX:
		return outbound.NewDirect(outbound.DirectOptions{
			Domain: a.domain, Hostname: o.Hostname, Port: o.MXPort, Dialer: o.Dialer, TLS: o.MXTLS, Resolver: a.dns, SecureDNS: o.SecureDNS,
			Policies: o.Policies, State: o.State, Own: a.Addr, Now: a.now, Logger: a.log,
		})
	}

	return nil, fmt.Errorf("mail.mode: %q is unknown; use %q, %q or %q", a.options.Mode, ModeCapture, ModeSmarthost, ModeMX)
}

func (a *Adapter) send(ctx context.Context, delivery exchange.Delivery, mail outbound.Mail, subject string) (outbound.Outcome, error) {
	if a.sender == nil {
		return a.capture(ctx, delivery, mail, subject)
	}
	return a.sender.Send(ctx, mail)
}

// capture keeps a mail instead of sending it. A repeat of a delivery overwrites its own copy.
func (a *Adapter) capture(ctx context.Context, delivery exchange.Delivery, mail outbound.Mail, subject string) (outbound.Outcome, error) {
	reply := delivery.Reply
	err := a.kept.put(ctx, Captured{
		ID: reply.ID + "/" + mail.Domain, From: mail.From, To: mail.Recipients, MessageID: delivery.NativeID, Subject: subject,
		ReplyID: reply.ID, Agent: reply.Agent, At: reply.CreatedAt.UTC(), Data: mail.Data,
	})
	return outbound.Outcome{Text: "captured, not sent (mail.mode = capture)"}, err
}

// audience is who a reply goes to.
type audience struct {
	to, cc  []message.Mailbox
	refused []string // addresses that the agent named and that were left out
}

func (o audience) all() []message.Mailbox { return slices.Concat(o.to, o.cc) }

// Plan returns the Message-ID and one destination per recipient domain. It is pure.
func (a *Adapter) Plan(_ context.Context, reply exchange.Reply) (exchange.Plan, error) {
	notes, ok := readRoute(reply.Route)
	if !ok {
		return exchange.Plan{}, fault.GiveUp("the note on how to answer this mail cannot be read", nil)
	}

	people := a.audience(reply, notes)
	var plan exchange.Plan
	plan.NativeID = a.renderer.replyID(reply)
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
// so: a Reply-To of the same organization may be any customer of a large provider. An answer to all goes to To and Cc as well.
func (a *Adapter) audience(reply exchange.Reply, notes route) audience {
	demand := hasPolicy(reply.Response)
	asker := notes.From
	if notes.ReplyTo != nil && (!demand || notes.ReplySigned) {
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
			case err != nil || private || box.Domain == a.domain || len(seen) > maxExtraRecipients || !a.mayWrite(box, notes):
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
	if notes.ReplyAll && !private {
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

func (a *Adapter) mayWrite(box message.Mailbox, notes route) bool {
	if a.options.AllowNewRecipients || box.Key() == notes.From.Key() {
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
func (a *Adapter) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	receipt, err := a.deliver(ctx, delivery)
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

func (a *Adapter) deliver(ctx context.Context, delivery exchange.Delivery) (receipt exchange.DeliveryReceipt, err error) {
	notes, ok := readRoute(delivery.Reply.Route)
	to, err := readDestination(delivery.Destination.Data)
	if err != nil || !ok || len(to.Recipients) == 0 {
		return receipt, fault.GiveUp("the note on where to send this mail cannot be read", err)
	}

	people := a.audience(delivery.Reply, notes)
	recipients, left, err := a.open(ctx, delivery, to.Recipients)
	if err != nil || len(recipients) == 0 {
		receipt.Detail = left
		return receipt, err
	}

	mail, err := a.finished(ctx, delivery, notes, people)
	if err != nil {
		return receipt, err
	}

	token, from := a.tokens.ReturnPath(delivery.ID, tagged(notes.Local, notes.Tag))
	result, err := a.send(ctx, delivery, outbound.Mail{From: from, Recipients: recipients, Domain: delivery.Destination.Key, EnvelopeID: token, Data: mail.data}, replySubject(notes))
	a.reporter.learn(ctx, delivery, recipients, result, err)
	if err == nil && len(result.Later) > 0 {
		err = a.partly(ctx, delivery, to.Recipients, result)
	}
	if err != nil {
		return receipt, a.keepForRepeat(ctx, delivery, mail, err)
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
	repeatNamespace   = "email/outgoing"
	progressNamespace = "email/progress"
	repeatLife        = authentication.SignatureEpoch // a kept mail ends before its signature does
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
// get the same bytes.
func (a *Adapter) finished(ctx context.Context, delivery exchange.Delivery, notes route, people audience) (finishedMail, error) {
	if delivery.Attempt > 1 {
		if data, found, err := a.offeredBefore(ctx, delivery.Reply.ID); err != nil || found {
			return finishedMail{data, true}, err
		}
	}

	mail, err := a.renderer.render(ctx, delivery.Reply, notes, people)
	if err != nil {
		return finishedMail{}, err
	}

	signed, err := a.signer.Sign(mail, delivery.Reply.CreatedAt)
	if err != nil {
		return finishedMail{}, fault.GiveUp("the mail cannot be signed", err)
	}

	return finishedMail{data: signed}, nil
}

func (a *Adapter) offeredBefore(ctx context.Context, replyID string) ([]byte, bool, error) {
	value, found, err := a.options.State.Get(ctx, repeatNamespace, replyID)
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

	data, err := readBlob(ctx, a.options.Blobs, kept.Blob, kept.Size+1)
	if fault.Is(err, fault.NotFound) {
		return nil, false, nil
	}

	return data, err == nil, err
}

// keepForRepeat stores the bytes of a mail whose attempt will be repeated, so that neither another key nor another
// configuration changes them. It returns the error of the attempt back. Nothing is stored for a mail that is taken at once:
// written anew after a crash, it has the same bytes.
func (a *Adapter) keepForRepeat(ctx context.Context, delivery exchange.Delivery, mail finishedMail, cause error) error {
	if mail.kept || fault.Of(cause).Permanent || ctx.Err() != nil {
		return cause
	}

	kept := keptMail{Data: mail.data, Size: int64(len(mail.data))}
	if len(mail.data) > maxStateBytes {
		digest, _, err := a.options.Blobs.Put(ctx, bytes.NewReader(mail.data))
		if err != nil {
			a.log.WarnContext(ctx, "a mail could not be kept for its repeat and will be written anew", "reply", delivery.Reply.ID, "error", err)
			return cause
		}
		kept.Data, kept.Blob = nil, digest
	}

	value, err := json.Marshal(kept)
	if err == nil {
		_, _, err = a.options.State.PutIfAbsent(ctx, repeatNamespace, delivery.Reply.ID, value, a.now().Add(repeatLife))
	}
	if err != nil {
		a.log.WarnContext(ctx, "a mail could not be kept for its repeat and will be written anew", "reply", delivery.Reply.ID, "error", err)
	}

	return cause
}

// progress is who needs no further attempt of a delivery.
type progress struct {
	Done []string `json:"done"`
}

// open returns the recipients who are to be tried: not those who have the mail or refused it, and not those that are
// suppressed. left says who is missing. No one left is an error, unless one of them has the mail.
func (a *Adapter) open(ctx context.Context, delivery exchange.Delivery, all []string) (recipients []string, left string, err error) {
	var before progress
	if delivery.Attempt > 1 {
		value, found, err := a.options.State.Get(ctx, progressNamespace, delivery.ID)
		if err != nil {
			return nil, "", err
		}
		if found && json.Unmarshal(value, &before) != nil {
			before = progress{}
		}
	}

	recipients = slices.DeleteFunc(slices.Clone(all), func(address string) bool { return slices.Contains(before.Done, address) })
	suppressed, err := a.reporter.suppressed(ctx, recipients)
	if err != nil {
		return nil, "", err
	}

	for _, one := range suppressed {
		recipients = slices.DeleteFunc(recipients, func(address string) bool { return addressKey(address) == one.Address })
		left += "; not sent to " + one.Address + ", which is suppressed: " + one.Reason
	}

	if len(recipients) == 0 && len(before.Done) == 0 {
		return nil, "", fault.GiveUp(message.Clip("suppressed: "+suppressed[0].Address+": "+suppressed[0].Reason+" (lift it with: inbox mail suppressed remove "+suppressed[0].Address+")", 500), nil)
	}

	return recipients, left, nil
}

// partly notes who has the mail, so that only the others are tried again.
func (a *Adapter) partly(ctx context.Context, delivery exchange.Delivery, all []string, result outbound.Outcome) error {
	later := addressesOf(result.Later)
	done := progress{Done: slices.DeleteFunc(slices.Clone(all), func(address string) bool { return slices.Contains(later, address) })}
	value, err := json.Marshal(done)
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}

	if err := a.options.State.Put(ctx, progressNamespace, delivery.ID, value, a.now().Add(2*repeatLife)); err != nil {
		return fmt.Errorf("store progress: %w", err)
	}

	last := result.Later[len(result.Later)-1]
	return fault.RetryIn(0, message.Clip("taken for "+fmt.Sprint(len(done.Done))+" of "+fmt.Sprint(len(all))+"; "+last.Address+": "+last.Reason(), 480), last.Answer)
}

func addressesOf(list []outbound.Refusal) []string {
	addresses := make([]string, 0, len(list))
	for _, one := range list {
		addresses = append(addresses, one.Address)
	}
	return addresses
}

var _ exchange.Acknowledger = (*Adapter)(nil)

// minAckAfter is how old a mail is at least before it is acknowledged: no sender expects the answer to a mail within
// seconds, so a second mail then would be noise.
const minAckAfter = time.Minute

// AckAfter returns the time that the operator wants, but at least a minute.
func (a *Adapter) AckAfter(wanted time.Duration) time.Duration { return max(wanted, minAckAfter) }
