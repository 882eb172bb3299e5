package exchange

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net"
	"slices"
	"time"

	"inbox/identity"
	"inbox/internal/httpserver"
	"inbox/internal/queue"
	"inbox/internal/redact"
)

// Module is one channel of a node: all that the engine and the node know of a network. An adapter makes it; the node serves its
// routes, runs its jobs and listeners, and hands its messages and answers to the engine.
type Module struct {
	// Name routes turns and deliveries and labels them for operators: activitypub, email, a2a, chat, bridge, …
	Name string
	// ReceivedVia is the contract's word for messages of the channel (message contract, section 1); several channels share one.
	ReceivedVia string

	Channel Channel // how answers leave
	// Reviser changes answers that were given; nil = Channel, where it is one.
	Reviser Reviser
	Policy

	Routes     []httpserver.Route
	Jobs       []Job
	Listeners  []Listener
	Background []func(context.Context) error // each runs until its context ends, and returns its error then

	Keys []redact.Key // addresses that the channel makes and that work for everyone who has them

	Opener Opener                          // begins conversations; nil = the channel only answers
	Links  func(agent AgentProfile) []Link // discovery links of an agent; nil = none
}

// Job is a kind of durable work of a channel that is neither a turn nor a delivery.
type Job struct {
	Kind    string // unique in the node
	Options queue.KindOptions
	Handler queue.Handler
}

// Listener takes connections of a channel beside HTTP.
type Listener interface {
	// Listen takes the configured address. The node calls it once, before Run.
	Listen() error
	// Run serves until the context ends, lets what is under way finish, and returns.
	Run(ctx context.Context) error
	// Addr returns the address after Listen; nil before.
	Addr() net.Addr
}

// Opener begins conversations of our agents with people: to ask for an approval, or to tell the operator something.
type Opener interface {
	// Reaches reports whether an address has the form of this channel.
	Reaches(address string) bool
	// Open returns the route of a reply that answers no message, for the address alone. An empty subject is one that says that
	// the agent needs a decision. Errors are classed with fault.RetryIn and fault.GiveUp.
	Open(ctx context.Context, agent, address, subject string) (json.RawMessage, error)
	// Parties returns the principals that the person at the end of an opened route has once they prove themselves.
	Parties(route json.RawMessage) []string
	// Proves reports whether evidence that this channel made proves an address; known is false where another channel made it.
	Proves(ctx context.Context, evidence *identity.Evidence, address string) (proven, known bool, err error)
}

// Policy is what the operator's settings say about a channel.
type Policy struct {
	// Schedule is the waits between attempts of a delivery; when they are used up the delivery is dead. nil = that of the engine.
	Schedule     []time.Duration
	Limits       DeliveryLimits
	Conversation ConversationLimits
}

// reviser returns what changes answers of the module, or nil.
func (m Module) reviser() Reviser {
	if m.Reviser != nil {
		return m.Reviser
	}
	able, _ := m.Channel.(Reviser)
	return able
}

// DeliveryLimits bound what goes to one destination key of a channel.
type DeliveryLimits struct {
	Concurrency int     // attempts at once; 0 = that of the engine
	PerSecond   float64 // attempts begun in a second on this node; 0 = no limit
	Burst       int     // of them at once after a quiet while; 0 = those of one second, at least one
	// WaitsTogether reports that a destination which asks one delivery to wait means all of them (Retry-After of HTTP).
	WaitsTogether bool
}

// ConversationLimits keep the conversations of one channel from running on for ever, beside the limits for all: programs that
// answer each other, and whose mails carry no mark of it (RFC 3834, section 5). A message over a limit is kept unanswered and its
// sender is not told, because the notice would be the next answer.
type ConversationLimits struct {
	Thread  []Rate        // answers in one conversation
	Sender  []Rate        // answers of one agent to one sender
	Same    int           // messages of one sender in a row that say the same and are answered, within a day; 0 = all
	Machine time.Duration // a sender who answers an answer of ours sooner is a program; 0 = none is
}

// Rate is how much is allowed in one window. Windows begin at multiples of their length since 1970, so that all nodes
// have the same; a day is one of UTC.
type Rate struct {
	Amount int64
	Window time.Duration
}

// ChannelLocal is the channel of questions between agents of one node: the agent that asks reads the answer off the turn, and
// nothing is delivered.
const ChannelLocal = "local"

// Channels are the modules of a node by name. The engine gets them before they are filled, because adapters are made with the
// engine at hand; all are added before anything runs, so that reading needs no lock.
type Channels struct {
	modules map[string]Module
	names   []string
}

// NewChannels makes the set of some modules. It panics where two have one name.
func NewChannels(modules ...Module) *Channels {
	c := &Channels{modules: map[string]Module{}}
	for _, module := range modules {
		if err := c.Add(module); err != nil {
			panic(err)
		}
	}
	return c
}

// Add adds a module. Its name must be free.
func (c *Channels) Add(module Module) error {
	if _, taken := c.modules[module.Name]; taken || module.Name == "" || module.Name == ChannelLocal {
		return fmt.Errorf("a channel cannot have the name %q: each channel needs its own name", module.Name)
	}
	c.modules[module.Name] = module
	c.names = append(c.names, module.Name)
	return nil
}

// Module returns the module of a name and reports whether there is one.
func (c *Channels) Module(name string) (Module, bool) {
	module, found := c.modules[name]
	return module, found
}

// Names returns the names of all modules in the order in which they were added.
func (c *Channels) Names() []string { return slices.Clone(c.names) }

// Empty reports whether there are none: a command that shares the database with a server has no way to anyone.
func (c *Channels) Empty() bool { return len(c.names) == 0 }

// All yields the modules in the order in which they were added.
func (c *Channels) All() iter.Seq[Module] {
	return func(yield func(Module) bool) {
		for _, name := range c.names {
			if !yield(c.modules[name]) {
				return
			}
		}
	}
}

// Channel returns how answers of a channel leave; nil when this node has no such channel.
func (c *Channels) Channel(name string) Channel { return c.modules[name].Channel }

// Reviser returns what changes answers of a channel, and reports whether there is something.
func (c *Channels) Reviser(name string) (Reviser, bool) {
	able := c.modules[name].reviser()
	return able, able != nil
}

// Opening is how a conversation that this server begins reaches its recipient: what Inbound says of one that a peer began.
type Opening struct {
	Channel     string
	ReceivedVia string // the contract's word for the channel
	Route       json.RawMessage
	Parties     []string // see Opener.Parties
}
