package email

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"inbox/identity"
	"inbox/internal/fault"
)

// Reaches reports whether an address is one of mail: @user@domain is an account elsewhere.
func (a *Adapter) Reaches(address string) bool { return !strings.HasPrefix(address, "@") }

// Open begins a conversation of an agent with a mailbox: the route of a reply that answers no mail. An answer to it joins its
// conversation. Without a subject the subject says that the agent needs a decision. Errors are classed with fault.GiveUp.
func (a *Adapter) Open(_ context.Context, agent, address, subject string) (json.RawMessage, error) {
	profile, known := a.options.Agents.Agent(agent)
	if !known {
		return nil, fault.GiveUp("there is no agent "+agent, nil)
	}
	box, err := parseMailbox(strings.TrimPrefix(strings.TrimPrefix(address, "mailto:"), "@"))
	switch {
	case err != nil:
		return nil, fault.GiveUp("the address is no mailbox", err)
	case box.Domain == a.domain:
		return nil, fault.GiveUp("the mailbox is one of this server", nil)
	}
	notes, err := json.Marshal(route{
		Version: 1, Local: strings.ToLower(profile.Name), From: box, To: []mailbox{box}, Verified: true, Opened: true,
		Subject: cmp.Or(subject, cmp.Or(displayName(profile.DisplayName), profile.Name)+" needs a decision"),
	})
	if err != nil {
		return nil, fmt.Errorf("encode route: %w", err)
	}
	return notes, nil
}

// Proves leaves it to the evidence itself, which names the mailbox.
func (a *Adapter) Proves(context.Context, *identity.Evidence, string) (proven, known bool, err error) {
	return false, false, nil
}
