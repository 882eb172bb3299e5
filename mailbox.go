package inbox

import (
	"context"

	"inbox/adapters/email"
	"inbox/engine/mailbox"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// forwardsPerDay bounds the mails that are sent on by themselves, so that no stranger decides how much this server sends.
const forwardsPerDay = 100

// newMailbox keeps mail for the operator.
func (e *engine) newMailbox() *mailbox.Service {
	return mailbox.New(mailbox.Options{
		Store: e.store, Blobs: e.blobs, Networks: e.guestNets.Of, Logger: e.logger,
		Quota:     func() exchange.MailQuota { return mailQuota(e.now().config) },
		ForwardTo: func() (string, int64) { return e.now().config.Operator.ForwardMail, forwardsPerDay },
	})
}

// mailQuota is what kept mail may take; a day has a tenth of it.
func mailQuota(config *Config) exchange.MailQuota {
	l := &config.Limits
	return exchange.MailQuota{
		SenderMessages: int64(l.MailboxPerSender), SenderBytes: int64(l.MailboxBytesPerSender),
		DayMessages: int64(l.MailboxMessages / 10), DayBytes: int64(l.MailboxBytes / 10),
		AllMessages: int64(l.MailboxMessages), AllBytes: int64(l.MailboxBytes), Kept: int64(l.KnownReserve),
	}
}

// handleForwards sends kept mail on through the ordinary deliveries, as an agent's notices leave.
func (m *modules) handleForwards() {
	if m.email == nil {
		return // another start, with mail, finds the jobs
	}
	m.queue.Handle(mailbox.ForwardKind, queue.KindOptions{Concurrency: 1}, func(ctx context.Context, job queue.Job) error {
		notice, opening, err := m.forward(ctx, job)
		if err != nil {
			return queue.Classed(ctx, err)
		}
		return m.pipeline.Notify(ctx, job, notice, opening)
	})
}

// forward makes the mail by which a kept one is sent on. It needs an agent, as every conversation does, but leaves under the address that
// the kept mail came to.
func (m *modules) forward(ctx context.Context, job queue.Job) (notice pipeline.Notice, opening exchange.Opening, err error) {
	wanted, err := mailbox.ForwardOf(job)
	if err != nil {
		return notice, opening, err
	}
	agents := m.now().agents.Entries()
	if len(agents) == 0 {
		return notice, opening, fault.GiveUp("this server has no agent under which mail could leave", nil)
	}

	agent := agents[0].Profile.Name
	if wanted.MailID == "" {
		return m.testMail(ctx, agent, wanted)
	}

	mail, text, file, err := m.mailbox.Forwarded(ctx, wanted.MailID)
	if fault.Is(err, fault.NotFound) {
		return notice, opening, fault.GiveUp("the mail is gone", err)
	}
	if err != nil {
		return notice, opening, err
	}

	local := mail.Mailbox
	if mail.Kind == exchange.MailCaptured {
		local = "postmaster"
	}
	route, err := m.email.OpenForward(local, wanted.To, mail.Subject)
	if err != nil {
		return notice, opening, err
	}

	opening = exchange.Opening{Channel: email.ChannelName, ReceivedVia: normalized.ViaEmail, Route: route}
	return pipeline.Notice{
		ID: wanted.ID, Agent: agent, To: wanted.To, Subject: "Fwd: " + mail.Subject, Text: text, Files: []normalized.Part{file},
	}, opening, nil
}

// testMail makes the mail of inbox mail send-test, by an agent.
func (m *modules) testMail(ctx context.Context, agent string, wanted exchange.MailForward) (notice pipeline.Notice, opening exchange.Opening, err error) {
	subject := "Test mail of " + m.config.Domain
	route, err := m.email.Open(ctx, agent, wanted.To, subject)
	if err != nil {
		return notice, opening, err
	}
	return pipeline.Notice{
		ID: wanted.ID, Agent: agent, To: wanted.To, Subject: subject,
		Text: "The operator of " + m.config.Domain + " asked for this mail (inbox mail send-test). If you read it in your inbox, answers of the agents arrive " +
			"there too. In a folder for spam, look at the header Authentication-Results: spf, dkim and dmarc should say pass.",
	}, exchange.Opening{Channel: email.ChannelName, ReceivedVia: normalized.ViaEmail, Route: route}, nil
}
