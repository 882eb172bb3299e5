package inbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"inbox/adapters/a2a"
	"inbox/adapters/activitypub"
	"inbox/adapters/bridge"
	"inbox/adapters/chat"
	"inbox/adapters/email"
	"inbox/adapters/tasks"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// channelEntry is how a node comes to one of its channels.
type channelEntry struct {
	name        string
	receivedVia string // as Module.ReceivedVia: cards name it before the module is made
	open        func(*modules) (exchange.Module, error)
}

// channelEntries are all channels of this program. Nothing else enumerates them.
func channelEntries() []channelEntry {
	return []channelEntry{
		{activitypub.ChannelName, normalized.ViaActivityPub, (*modules).openActivityPub},
		{a2a.ChannelName, normalized.ViaA2A, (*modules).openA2A},
		{chat.ChannelName, normalized.ViaA2A, (*modules).openChat},
		{bridge.ChannelName, normalized.ViaA2A, (*modules).openBridge},
		{tasks.ChannelName, normalized.ViaA2A, (*modules).openTasks},
		{email.ChannelName, normalized.ViaEmail, (*modules).openEmail},
	}
}

// channelList are the channels that the settings switch on.
func (m *modules) channelList() []channelEntry {
	return slices.DeleteFunc(channelEntries(), func(c channelEntry) bool { return c.name == email.ChannelName && m.config.SMTP.Listen == "" })
}

// ChannelNames lists the channels of this program, whether they are switched on or not, and that of questions between agents of one server.
func ChannelNames() []string {
	var names []string
	for _, one := range channelEntries() {
		names = append(names, one.name)
	}
	return append(names, exchange.ChannelLocal)
}

// Node is what a channel of an embedding program gets from the server that runs it.
type Node struct {
	Domain    string // of the agents' addresses
	PublicURL string

	Receiver  Receiver
	Directory Directory
	Tokens    Tokens
}

// Receiver takes one message durably; see exchange.Receiver.
type Receiver = exchange.Receiver

// Directory knows the agents of the server; see exchange.Directory.
type Directory = exchange.Directory

// Tokens finds the bearer tokens of the operator; see exchange.Tokens.
type Tokens = exchange.Tokens

// OpenChannel makes a channel of an embedding program.
type OpenChannel func(node Node) (exchange.Module, error)

// modules are the channels of a node, each opened with what it needs of the engine.
type modules struct {
	*engine

	activitypub *activitypub.Adapter
	a2a         *a2a.Adapter
	grpc        *a2a.GRPC // nil when a2a.grpc_listen is off
	chat        *chat.Adapter
	bridge      *bridge.Adapter
	email       *email.Adapter // nil when smtp.listen is off

	listeners []*listening // beside HTTP
}

// openModules opens the channels of the server and those of the embedding program, and hands their work to the queue.
func openModules(below *engine, more []OpenChannel) (*modules, error) {
	m := &modules{engine: below}
	list := m.channelList()
	for _, open := range more {
		list = append(list, channelEntry{open: func(m *modules) (exchange.Module, error) { return open(m.node()) }})
	}

	for _, one := range list {
		module, err := one.open(m)
		if err != nil {
			return nil, err
		}
		if err := m.channels.Add(module); err != nil {
			return nil, err
		}

		for _, job := range module.Jobs {
			m.queue.Handle(job.Kind, job.Options, job.Handler)
		}

		for _, listener := range module.Listeners {
			m.listeners = append(m.listeners, &listening{Listener: listener, channel: module.Name})
		}
	}

	m.handleForwards()
	m.handleDeliveries() // whose workers follow from the channels' limits
	return m, nil
}

func (m *modules) node() Node {
	return Node{Domain: m.config.Domain, PublicURL: m.config.PublicURL, Receiver: m.pipeline, Directory: m.registry, Tokens: m.tokens}
}

// inbound are the contract's words for the ways by which agents are reached, for cards.
func (m *modules) inbound() []string {
	var words []string
	for _, one := range m.channelList() {
		if !slices.Contains(words, one.receivedVia) {
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
		return exchange.Opening{Channel: module.Name, ReceivedVia: module.ReceivedVia, Route: route, Parties: module.Opener.Parties(route)}, err
	}
	return exchange.Opening{}, fault.GiveUp(fmt.Sprintf("no channel of this server reaches %s; mail needs smtp.listen", address), nil)
}

// Proves returns the evidence of the sender for an address; nil = none. In mail addresses case does not count.
func (o openers) Proves(ctx context.Context, sender normalized.Sender, address string) (*identity.Evidence, error) {
	for i := range sender.Identities {
		evidence := &sender.Identities[i]
		proven, err := o.proves(ctx, evidence, address)
		if err != nil || proven {
			return evidence, err
		}
	}
	return nil, nil
}

func (o openers) proves(ctx context.Context, evidence *identity.Evidence, address string) (bool, error) {
	for module := range o.channels.All() {
		if module.Opener == nil {
			continue
		}
		if proven, known, err := module.Opener.Proves(ctx, evidence, address); known || err != nil {
			return proven, err
		}
	}

	return evidence.Vouches(address) || strings.EqualFold(evidence.Proven().Mail(), strings.TrimPrefix(address, "@")), nil
}

// prepareKeys makes the keys of the actors before they are asked for. A database that is down just now must not end the
// server: the keys are then made when they are first needed.
func (m *modules) prepareKeys(ctx context.Context) error {
	if err := m.activitypub.Prepare(ctx); err != nil && ctx.Err() == nil {
		m.logger.WarnContext(ctx, "keys could not be prepared and will be made when they are needed", "error", err)
	}
	return nil
}

// listening is a listener of a channel beside HTTP.
type listening struct {
	exchange.Listener
	channel string
	socket  string      // name of the one that the service manager may pass; empty = the module's name
	served  atomic.Bool // connections are taken
}

// checkListeners reports whether every channel that listens beside HTTP, such as mail, takes connections.
func (m *modules) checkListeners(context.Context) error {
	for _, listener := range m.listeners {
		if !listener.served.Load() {
			return fault.Newf(fault.Unavailable, "the channel %s takes no connections", listener.channel)
		}
	}
	return nil
}
