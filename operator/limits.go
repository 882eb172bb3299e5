package operator

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Who a limit is about: whose messages are counted, and who hears that there are too many.
const (
	PayerSender = "sender" // one sender who is proven, or the network of one who is not
	PayerDomain = "domain" // all senders of a domain, or of a network
	PayerGuests = "guests" // all senders without proof
	PayerThread = "thread" // one conversation
	PayerAgent  = "agent"  // one agent
	PayerServer = "server" // all together
)

// Limit is one bound of the settings.
type Limit struct {
	Key   string `json:"key"`   // of the settings
	Value string `json:"value"` // as the settings say it; empty = there is no bound
	Payer string `json:"payer"`

	Known bool  `json:"known"` // Used and Most are known
	Used  int64 `json:"used,omitempty"`
	Most  int64 `json:"most,omitempty"` // 0 = no bound
}

// Limits returns the limits in force of what strangers may cause, with how much of them is used where that is one number.
func (o *Operator) Limits(ctx context.Context) ([]Limit, error) {
	held, err := o.options.Store.Unanswered(ctx)
	if err != nil {
		return nil, err
	}
	mails, _, err := o.options.Store.MailUse(ctx)
	if err != nil {
		return nil, err
	}

	c := o.options.Current()
	l := c.Limits
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	span := func(d time.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	size := func(n interface{ String() string }, bytes int64) string {
		if bytes == 0 {
			return ""
		}
		return n.String()
	}
	rates := func(list []string) string { return strings.Join(list, ", ") }
	bounded := func(key, value, payer string, used, most int64) Limit {
		return Limit{Key: key, Value: value, Payer: payer, Known: true, Used: used, Most: most}
	}

	return []Limit{
		{Key: "limits.sender", Value: rates(l.Sender), Payer: PayerSender},
		{Key: "limits.host", Value: rates(l.Host), Payer: PayerDomain},
		{Key: "limits.thread", Value: rates(l.Thread), Payer: PayerThread},
		{Key: "limits.agent", Value: rates(l.Agent), Payer: PayerAgent},
		{Key: "limits.total", Value: rates(l.Total), Payer: PayerServer},
		{Key: "limits.mail_thread", Value: rates(l.MailThread), Payer: PayerThread},
		{Key: "limits.mail_sender", Value: rates(l.MailSender), Payer: PayerSender},
		{Key: "limits.same_messages", Value: number(l.SameMessages), Payer: PayerSender},
		{Key: "limits.mail_pace", Value: span(l.MailPace), Payer: PayerSender},
		{Key: "limits.sender_runs_per_day", Value: number(l.SenderRunsPerDay), Payer: PayerSender},
		{Key: "limits.agent_runs_per_day", Value: number(l.AgentRunsPerDay), Payer: PayerAgent},
		{Key: "limits.sender_cost_per_day", Value: l.SenderCostPerDay, Payer: PayerSender},
		{Key: "limits.agent_cost_per_day", Value: l.AgentCostPerDay, Payer: PayerAgent},
		{Key: "limits.guest_max_bytes", Value: size(l.GuestMaxBytes, int64(l.GuestMaxBytes)), Payer: PayerSender},
		{Key: "limits.guest_bytes_per_day", Value: size(l.GuestBytesPerDay, int64(l.GuestBytesPerDay)), Payer: PayerDomain},
		{Key: "limits.all_guest_bytes_per_day", Value: size(l.AllGuestBytesPerDay, int64(l.AllGuestBytesPerDay)), Payer: PayerGuests},
		{Key: "limits.held_per_sender", Value: number(l.HeldPerSender), Payer: PayerDomain},
		{Key: "limits.held_bytes_per_sender", Value: size(l.HeldBytesPerSender, int64(l.HeldBytesPerSender)), Payer: PayerDomain},
		bounded("limits.held_messages", number(l.HeldMessages), PayerServer, held.Messages, int64(l.HeldMessages)),
		bounded("limits.held_bytes", size(l.HeldBytes, int64(l.HeldBytes)), PayerServer, held.Bytes, int64(l.HeldBytes)),
		{Key: "limits.held_for", Value: span(l.HeldFor), Payer: PayerSender},
		bounded("limits.mailbox_messages", number(l.MailboxMessages), PayerServer, mails, int64(l.MailboxMessages)),
		{Key: "smtp.max_message_bytes", Value: size(c.SMTP.MaxMessageBytes, int64(c.SMTP.MaxMessageBytes)), Payer: PayerSender},
		{Key: "http.max_body_bytes", Value: size(c.HTTP.MaxBodyBytes, int64(c.HTTP.MaxBodyBytes)), Payer: PayerSender},
	}, nil
}
