package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"inbox/adapters/bridge"
	"inbox/adapters/bridge/contract"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/config"
	"inbox/internal/fault"
)

// Conversations are the sessions of bridges and connectors, and threads of any way, as other systems keep them.
type Conversations struct {
	config func() *config.Config
	store  *store.Store
}

// ConversationFilter selects conversations for an export. Empty fields do not restrict.
type ConversationFilter struct {
	Client    string // id of a bridge's client: its sessions
	Connector string // name of a connector: its sessions
	Agent     string
	Session   string // one session
	Thread    string // one thread of any way, which needs Agent; no other field is looked at
	Format    string // of the messages: agent-framework, which is that of an empty one, or envelope
}

// ConversationFormats lists the forms of exported messages.
func ConversationFormats() []string { return bridge.Formats() }

// Export returns conversations in the form that Import takes.
func (c Conversations) Export(ctx context.Context, filter ConversationFilter) ([]bridge.Document, error) {
	format := cmp.Or(filter.Format, bridge.FormatFramework)
	if !slices.Contains(bridge.Formats(), format) {
		return nil, fault.InField("format", "must be one of "+strings.Join(bridge.Formats(), ", "))
	}

	archive := bridge.Archive{Turns: c.store, Sessions: c.store}
	documents := []bridge.Document{}
	if filter.Thread != "" {
		if filter.Agent == "" {
			return nil, fault.InField("agent", "is needed: a thread is one of an agent")
		}
		session := exchange.Session{ID: filter.Thread, Agent: filter.Agent, ThreadID: filter.Thread}
		document, err := archive.Document(ctx, session, format)
		return append(documents, document), err
	}

	rows := exchange.SessionFilter{Owner: c.ownerOf(filter.Client, filter.Connector), Agent: filter.Agent}
	for {
		page, err := c.store.Sessions(ctx, rows)
		if err != nil {
			return nil, err
		}

		for _, session := range page {
			if filter.Session != "" && session.ID != filter.Session {
				continue
			}
			document, err := archive.Document(ctx, session, format)
			if err != nil {
				return nil, err
			}
			documents = append(documents, document)
		}

		if len(page) == 0 {
			return documents, nil
		}

		rows.Before = page[len(page)-1].Cursor()
	}
}

func (c Conversations) ownerOf(client, connector string) string {
	switch {
	case client != "":
		return bridge.OwnerOfBridge(c.config().Domain, client)
	case connector != "":
		return bridge.OwnerOfConnector(c.config().Domain, connector)
	}
	return exchange.AnyOwner
}

// ImportedConversation is what became of one conversation of an import.
type ImportedConversation struct {
	SessionID string `json:"session_id"`
	Agent     string `json:"agent"`
	Messages  int    `json:"messages"`
	Created   bool   `json:"created"`           // false: it was here already
	Lenient   int    `json:"lenient,omitempty"` // messages that break a rule of the framework and are kept all the same
}

// Import stores conversations for a bridge or connector; agent is that of conversations which name none. All are
// checked before the first is stored, each is stored whole, and the same again does nothing. The body may be that of
// POST /v1/import.
func (c Conversations) Import(ctx context.Context, client, connector, agent string, strict bool, body []byte) ([]ImportedConversation, error) {
	owner := c.ownerOf(client, connector)
	if owner == exchange.AnyOwner {
		return nil, fault.InField("client", "is needed, or connector: whose conversations are they?")
	}

	documents, mapped, err := bridge.ReadImport(body)
	if err != nil {
		return nil, err
	}

	prepared := make([]bridge.Prepared, 0, len(documents))
	for i, document := range documents {
		name, err := c.configured(document.Agent, agent)
		if err != nil {
			return nil, err
		}
		document.Strict = document.Strict || strict
		one, err := bridge.Prepare(owner, name, document, i)
		if err != nil {
			return nil, err
		}
		prepared = append(prepared, one)
	}

	done := []ImportedConversation{}
	for _, one := range prepared {
		stored, created, err := c.store.ImportSession(ctx, one.Session, one.Messages)
		if err != nil {
			return done, fmt.Errorf("session %s: %w", one.Session.ID, err)
		}
		if err := c.lead(ctx, stored); err != nil {
			return done, err
		}
		done = append(done, ImportedConversation{stored.ID, stored.Agent, len(one.Messages), created, one.Lenient})
	}

	for key, session := range mapped {
		if err := c.store.SessionMap(owner).ImportSession(ctx, key, session); err != nil {
			return done, err
		}
	}

	return done, nil
}

// lead brings the outside conversation of a session there.
func (c Conversations) lead(ctx context.Context, session exchange.Session) error {
	if session.Connector == "" || session.Conversation == "" {
		return nil
	}
	key := contract.NewSessionKey(session.Connector, session.Conversation, session.Agent)
	return c.store.SessionMap(session.Owner).SetSession(ctx, key, session.ID)
}

// configured finds an agent's name as it is written in the configuration.
func (c Conversations) configured(names ...string) (string, error) {
	for _, name := range names {
		if name == "" {
			continue
		}
		for _, agent := range c.config().Agents {
			if strings.EqualFold(agent.Name, name) {
				return agent.Name, nil
			}
		}
		return "", fault.Newf(fault.NotFound, "there is no agent %q; see: inbox agents list", name)
	}
	return "", fault.InField("agent", "is needed: say with whom the conversation is")
}

// EncodeConversations writes an export.
func EncodeConversations(documents []bridge.Document) ([]byte, error) {
	list := make([]json.RawMessage, 0, len(documents))
	for _, document := range documents {
		encoded, err := document.Encode()
		if err != nil {
			return nil, err
		}
		list = append(list, encoded)
	}
	return bridge.EncodeAll(list)
}
