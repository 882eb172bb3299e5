package exchangetest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"inbox/exchange"
)

// Mailbox keeps mail for the operator as the engine would, each once.
type Mailbox struct {
	Refuse func(exchange.IncomingMail) error // nil = no mail is refused

	mu   sync.Mutex
	kept map[string]exchange.IncomingMail
}

// Keep keeps a mail.
func (m *Mailbox) Keep(_ context.Context, mail exchange.IncomingMail) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.Refuse != nil {
		if err := m.Refuse(mail); err != nil {
			return err
		}
	}
	if m.kept == nil {
		m.kept = map[string]exchange.IncomingMail{}
	}
	if _, repeated := m.kept[mail.Key]; !repeated {
		m.kept[mail.Key] = mail
	}
	return nil
}

// All returns the mails that were kept, of one kind or, without one, of all but captured ones, in the order of their keys.
func (m *Mailbox) All(kind string) (mails []exchange.IncomingMail) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(m.kept)) {
		if mail := m.kept[key]; mail.Kind == kind || kind == "" && mail.Kind != exchange.MailCaptured {
			mails = append(mails, mail)
		}
	}
	return mails
}
