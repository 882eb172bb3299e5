package email

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

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

// Plan gives the Message-ID and one destination per recipient domain. It is pure.
func (a *Adapter) Plan(_ context.Context, reply exchange.Reply) (exchange.Plan, error) {
	notes, ok := readRoute(reply.Route)
	if !ok {
		return exchange.Plan{}, fault.GiveUp("the note on how to answer this mail cannot be read", nil)
	}
	people := a.audience(reply, notes)
	var plan exchange.Plan
	plan.NativeID = a.replyID(reply)
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
func (a *Adapter) replyID(reply exchange.Reply) string { return reply.ID + "@" + a.domain }

// audience answers the sender, and others only where that is safe: named by the agent, part of the conversation
// (or allowed by the operator), never at our own domain, never for unverified mail or a policy answer, which
// carries secrets for the asker alone. Those go elsewhere than to the proven address only where its own signature says
// so: a Reply-To of the same organization may be anybody at a large provider. An answer to all goes to To and Cc as well.
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
	a.learn(ctx, delivery, recipients, result, err)
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

// ReplyIDOf gives the id of the reply that a Message-ID of ours was made from, and the domain behind it.
func ReplyIDOf(messageID string) (replyID, domain string) {
	at := strings.LastIndexByte(messageID, '@')
	if at < 0 {
		return "", ""
	}
	return messageID[:at], messageID[at+1:]
}
