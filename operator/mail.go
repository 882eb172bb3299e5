package operator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/mail"
	"slices"
	"strings"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/mailbox"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clock"
	"inbox/internal/config"
	"inbox/internal/fault"
)

// Mail is what is kept for the operator: mail to role addresses of the domain, such as postmaster, what other servers report there, and
// answers that mail.mode = capture kept.
type Mail struct {
	store  *store.Store
	files  func() (exchange.Files, error) // opens the blob store, which large mails alone need
	config *config.Config
}

// List lists kept mail, newest first, without headers and text.
func (m Mail) List(ctx context.Context, filter exchange.MailFilter) ([]exchange.Mail, error) {
	if filter.Kind != "" && !slices.Contains(exchange.MailKinds(), filter.Kind) {
		return nil, fault.InField("kind", "must be one of "+strings.Join(exchange.MailKinds(), ", "))
	}
	found, err := m.store.Mails(ctx, filter)
	return listed(found), err
}

// Show returns one mail; fault.NotFound when there is none.
func (m Mail) Show(ctx context.Context, id string) (exchange.Mail, error) {
	return m.store.Mail(ctx, id)
}

// Raw opens the bytes of a mail, as they were received below the fields that this server put on top; fault.NotFound when there is none. The
// caller closes it.
func (m Mail) Raw(ctx context.Context, id string) (io.ReadCloser, error) {
	raw, digest, err := m.store.MailBytes(ctx, id)
	if err != nil || digest == "" {
		return io.NopCloser(bytes.NewReader(raw)), err
	}
	files, err := m.files()
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, "the mail is in the blob store, which cannot be opened here", err)
	}
	return files.Open(ctx, digest)
}

// Forward sends a mail on to an address, attached to a mail of ours, and returns the id of what leaves. A server that runs sends it at once,
// one that is stopped after its next start. fault.NotFound without such a mail; fault.Malformed for an address that is none, or is here.
func (m Mail) Forward(ctx context.Context, id, to string) (exchange.MailForward, error) {
	if err := m.canSend(to, "is an address of this server, where the mail is already"); err != nil {
		return exchange.MailForward{}, err
	}
	if _, err := m.store.Mail(ctx, id); err != nil {
		return exchange.MailForward{}, err
	}

	return m.enqueue(ctx, id, to)
}

// SendTest sends a test mail to an address. A running server sends it like an answer; see Sent. fault.Malformed for an address that is not valid or
// is one of this server, fault.Conflict if no mail leaves here.
func (m Mail) SendTest(ctx context.Context, to string) (exchange.MailForward, error) {
	if m.config.Mail.Mode == "capture" {
		return exchange.MailForward{}, fault.New(fault.Conflict, `mail.mode is "capture": no mail leaves this server`)
	}
	if err := m.canSend(to, "is an address of this server; a test needs one elsewhere"); err != nil {
		return exchange.MailForward{}, err
	}
	return m.enqueue(ctx, "", to)
}

// Sent waits until a mail of Forward or SendTest was delivered or given up, at most for the limit, and returns its delivery as it is then. The
// zero value stands for one that no server has begun to send.
func (m Mail) Sent(ctx context.Context, sent exchange.MailForward, limit time.Duration) (delivery.Record, error) {
	filter := delivery.Filter{TurnID: pipeline.NoticeTurn(sent.ID), Limit: 1}
	for end := time.Now().Add(limit); ; {
		found, err := m.store.Deliveries(ctx, filter)
		if err != nil {
			return delivery.Record{}, err
		}
		var record delivery.Record
		if len(found) > 0 {
			record = found[0]
		}
		if slices.Contains([]string{delivery.StateDelivered, delivery.StateDead, delivery.StateCancelled}, record.State) || !time.Now().Before(end) {
			return record, nil
		}
		if err := clock.Sleep(ctx, outcomePause); err != nil {
			return record, err
		}
	}
}

// canSend reports why no mail can be sent to an address; here is the reason for one of this server.
func (m Mail) canSend(to, here string) error {
	parsed, err := mail.ParseAddress(to)
	switch {
	case err != nil || parsed.Address != to:
		return fault.InField("to", `must be an address such as "me@example.org"`)
	case exchange.MailDomain(to) == identity.HostOf(m.config.Domain):
		return fault.InField("to", here)
	case m.config.SMTP.Listen == "":
		return fault.New(fault.Conflict, "mail is off: smtp.listen is empty")
	}
	return nil
}

// enqueue asks for a kept mail to be sent on, or without an id for a test mail.
func (m Mail) enqueue(ctx context.Context, id, to string) (exchange.MailForward, error) {
	job, forward, err := mailbox.ForwardJob(id, to)
	if err != nil {
		return exchange.MailForward{}, fmt.Errorf("make job: %w", err)
	}
	return forward, m.store.InTx(ctx, func(tx *store.Tx) error { return tx.Enqueue(ctx, job) })
}

// Reports lists lines of reports, newest first.
func (m Mail) Reports(ctx context.Context, filter exchange.ReportFilter) ([]exchange.StoredReportRow, error) {
	if err := checkReportKind(filter.Kind); err != nil {
		return nil, err
	}
	found, err := m.store.Reports(ctx, filter)
	return listed(found), err
}

// SumReports adds lines of reports up by source and result, the largest first.
func (m Mail) SumReports(ctx context.Context, filter exchange.ReportFilter) ([]exchange.ReportSum, error) {
	if err := checkReportKind(filter.Kind); err != nil {
		return nil, err
	}
	found, err := m.store.SumReports(ctx, filter)
	return listed(found), err
}

func checkReportKind(kind string) error {
	if kind != "" && kind != exchange.MailDMARC && kind != exchange.MailTLS {
		return fault.InField("kind", "must be dmarc or tls")
	}
	return nil
}
