package inbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"inbox/adapters/a2a"
	"inbox/adapters/activitypub"
	"inbox/adapters/bridge"
	"inbox/adapters/chat"
	"inbox/adapters/email"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// channelEntry is how a node comes to one of its channels.
type channelEntry struct {
	name        string
	receivedVia string // as Module.ReceivedVia: cards name it before the module is made
	off         bool   // by the settings
	open        func() (exchange.Module, error)
}

// channelList are all channels of a node. Nothing else enumerates them.
func (s *Server) channelList() []channelEntry {
	return []channelEntry{
		{activitypub.ChannelName, normalized.ViaActivityPub, false, s.openActivityPub},
		{a2a.ChannelName, normalized.ViaA2A, false, s.openA2A},
		{chat.ChannelName, normalized.ViaA2A, false, s.openChat},
		{bridge.ChannelName, normalized.ViaA2A, false, s.openBridge},
		{email.ChannelName, normalized.ViaEmail, s.config.SMTP.Listen == "", s.openEmail},
	}
}

// Node is what a channel of an embedding program gets from the server that runs it.
type Node struct {
	Domain    string // of the agents' addresses
	PublicURL string

	Receiver  Receiver
	Directory Directory
	Tokens    Tokens
}

// Receiver takes one message durably: when it returns without an error the message is stored with fsync and will be answered.
// Errors are *fault.Fault.
type Receiver interface {
	Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error)
}

// Directory knows the agents of the server; names are compared case-insensitively.
type Directory interface {
	Agent(name string) (exchange.AgentProfile, bool)
	Agents() []exchange.AgentProfile
}

// Tokens finds a bearer token of the operator by the lower-case hex SHA-256 of its text; revoked ones too.
type Tokens interface {
	TokenByHash(ctx context.Context, hash string) (exchange.Token, bool, error)
}

// OpenChannel makes a channel of an embedding program.
type OpenChannel func(node Node) (exchange.Module, error)

// openChannels makes all modules and hands their work to the queue.
func (s *Server) openChannels(more []OpenChannel) error {
	list := slices.DeleteFunc(s.channelList(), func(c channelEntry) bool { return c.off })
	for _, open := range more {
		list = append(list, channelEntry{open: func() (exchange.Module, error) { return open(s.node()) }})
	}

	for _, one := range list {
		module, err := one.open()
		if err != nil {
			return err
		}
		if err := s.channels.Add(module); err != nil {
			return err
		}
		for _, job := range module.Jobs {
			s.queue.Handle(job.Kind, job.Options, job.Handler)
		}
	}
	return nil
}

func (s *Server) node() Node {
	return Node{Domain: s.config.Domain, PublicURL: s.config.PublicURL, Receiver: s.pipeline, Directory: s.registry, Tokens: s.store}
}

// inbound are the contract's words for the ways by which agents are reached, for cards.
func (s *Server) inbound() []string {
	var words []string
	for _, one := range s.channelList() {
		if !one.off && !slices.Contains(words, one.receivedVia) {
			words = append(words, one.receivedVia)
		}
	}
	slices.Sort(words)
	return words
}

// openers reach people by the form of their address.
type openers struct{ channels *exchange.Channels }

// Open begins a conversation with an approver.
func (o openers) Open(ctx context.Context, agent, address string) (exchange.Opening, error) {
	return o.open(ctx, agent, address, "")
}

func (o openers) open(ctx context.Context, agent, address, subject string) (exchange.Opening, error) {
	for module := range o.channels.All() {
		if module.Opener == nil || !module.Opener.Reaches(address) {
			continue
		}
		route, err := module.Opener.Open(ctx, agent, address, subject)
		return exchange.Opening{Channel: module.Name, ReceivedVia: module.ReceivedVia, Route: route}, err
	}
	return exchange.Opening{}, fault.GiveUp(fmt.Sprintf("no channel of this server reaches %s; mail needs smtp.listen", address), nil)
}

// Proves returns the evidence of the sender for an address; nil = none. In mail addresses case does not count.
func (o openers) Proves(ctx context.Context, sender normalized.Sender, address string) (*identity.Evidence, error) {
	for i := range sender.Identities {
		evidence := &sender.Identities[i]
		proven, err := o.proves(ctx, evidence, sender.Address, address)
		if err != nil || proven {
			return evidence, err
		}
	}
	return nil, nil
}

func (o openers) proves(ctx context.Context, evidence *identity.Evidence, stated, address string) (bool, error) {
	for module := range o.channels.All() {
		if module.Opener == nil {
			continue
		}
		if proven, known, err := module.Opener.Proves(ctx, evidence, address); known || err != nil {
			return proven, err
		}
	}

	if strings.EqualFold(strings.TrimPrefix(stated, "@"), strings.TrimPrefix(address, "@")) {
		address = stated
	}
	return evidence.Vouches(address), nil
}
