package email

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"inbox/adapters/email/message"
	"inbox/internal/fault"
)

// Open begins a conversation of an agent with a mailbox: the route of a reply that answers no mail. An answer to it
// joins its conversation. Errors are classed with fault.GiveUp.
func (a *Adapter) Open(ctx context.Context, agent, address string) (json.RawMessage, error) {
	return a.OpenAbout(ctx, agent, address, "")
}

// OpenAbout is Open with a subject; without one the subject says that the agent needs a decision.
func (a *Adapter) OpenAbout(_ context.Context, agent, address, subject string) (json.RawMessage, error) {
	profile, known := a.options.Agents.Agent(agent)
	if !known {
		return nil, fault.GiveUp("there is no agent "+agent, nil)
	}
	box, err := message.ParseMailbox(strings.TrimPrefix(strings.TrimPrefix(address, "mailto:"), "@"))
	switch {
	case err != nil:
		return nil, fault.GiveUp("the address is no mailbox", err)
	case box.Domain == a.domain:
		return nil, fault.GiveUp("the mailbox is one of this server", nil)
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
