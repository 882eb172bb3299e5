// Package line is an example of a channel: people and programs talk to agents by lines of text on a TCP connection.
//
//	client                      server
//	HELLO inbox_…               + HELLO @ann@example.com     a token of the operator says who it is
//	SAY m1 echo "how are you?"  + SAY m1                     the message is stored and will be answered
//	                            ANSWER r1 m1 "I am fine."    the answer, again and again until it is acknowledged
//	GOT r1
//
// A refusal is "- ", the words that it is about, and the reason in quotes. Texts are JSON
// strings. An answer
// waits while its asker is not connected. What a server has to do is here, and nothing else: there is no encryption (put it
// behind a proxy that has it) and there are no files.
package line

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"inbox"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
)

// Name is the name of the channel.
const Name = "line"

// schedule is how long an answer waits for its asker to come back: about a day.
var schedule = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

// Channel takes connections. It keeps nothing that must outlive it: messages and answers are rows of the server.
type Channel struct {
	listen string
	node   inbox.Node
	tokens *bearer.Cache

	listener net.Listener
	mu       sync.Mutex
	sessions map[*session]struct{}
}

// New makes a Channel on an address.
func New(listen string) *Channel {
	return &Channel{listen: listen, sessions: map[*session]struct{}{}}
}

// Module returns the channel as a node runs it.
func (c *Channel) Module(node inbox.Node) exchange.Module {
	c.node, c.tokens = node, bearer.NewCache(node.Tokens)
	return exchange.Module{
		Name: Name, ReceivedVia: normalized.ViaA2A, // of the contract's three words the one for peers with tokens
		Channel: c, Policy: exchange.Policy{Schedule: schedule}, Listeners: []exchange.Listener{c},
	}
}

// Listen takes the address.
func (c *Channel) Listen() (err error) {
	c.listener, err = net.Listen("tcp", c.listen)
	return err
}

// Addr returns the address after Listen.
func (c *Channel) Addr() net.Addr {
	if c.listener == nil {
		return nil
	}
	return c.listener.Addr()
}

// Run serves until the context ends, and then ends every connection: what a client did not hear an answer to, it says again.
func (c *Channel) Run(ctx context.Context) error {
	var working sync.WaitGroup
	defer working.Wait()
	defer context.AfterFunc(ctx, func() {
		_ = c.listener.Close()
		for _, one := range c.connected(nil) {
			_ = one.connection.Close()
		}
	})()

	for {
		connection, err := c.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = connection.Close()
			}
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("accept a connection of lines: %w", err)
		}

		one := newSession(c, connection)
		if !c.add(one) {
			_ = connection.Close()
			continue
		}

		working.Go(func() { one.serve(ctx) })
	}
}

// maxConnections bounds what strangers can hold open; each has maxHello to say who it is.
const maxConnections = 256

func (c *Channel) add(one *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sessions) >= maxConnections {
		return false
	}
	c.sessions[one] = struct{}{}
	return true
}

func (c *Channel) remove(one *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, one)
}

// connected returns the sessions for which a condition holds; nil = all.
func (c *Channel) connected(holds func(*session) bool) (list []*session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.sessions {
		if holds == nil || holds(one) {
			list = append(list, one)
		}
	}
	return list
}

// route is what the answer to a message needs; the server keeps it with the message.
type route struct {
	Token   string `json:"token"`   // id of the asker's token
	Message string `json:"message"` // as the client named it
}

// inbound makes the normalized message of a SAY.
func (c *Channel) inbound(token exchange.Token, agent exchange.AgentProfile, id, text string) (exchange.Inbound, error) {
	kept, err := json.Marshal(route{Token: token.ID, Message: id})
	if err != nil {
		return exchange.Inbound{}, fmt.Errorf("encode route: %w", err)
	}

	sender := bearer.Sender(token, agent, c.node.Domain)
	sender.Identities[0].Source.Connector = Name
	return exchange.Inbound{
		Channel: Name, Route: kept, Original: []byte(text),
		Message: normalized.Message{
			ID: Name + ":" + id, ThreadID: Name + ":" + token.ID + ":" + agent.Name, Sender: sender, Recipient: agent.Address,
			Parts: []normalized.Part{normalized.Text(text)}, ReceivedVia: normalized.ViaA2A, ReceivedAt: identity.Now(),
			Raw: normalized.Raw{MediaType: "text/plain"},
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}, TextMIMEs: []string{normalized.MIMEPlain},
			},
		},
	}, nil
}

// Plan names one destination: the asker, who is known by the token. The reply's id is the answer's id on the wire, so that a
// client recognises one that it got before.
func (c *Channel) Plan(_ context.Context, reply exchange.Reply) (exchange.Plan, error) {
	var kept route
	if err := json.Unmarshal(reply.Route, &kept); err != nil {
		return exchange.Plan{}, fmt.Errorf("read route: %w", err)
	}
	return exchange.Plan{NativeID: reply.ID, Destinations: []exchange.Destination{{
		Key: kept.Token + "." + Name + ".invalid", Address: Name + "://" + strings.TrimPrefix(reply.Message.Sender.Address.String(), "@"),
	}}}, nil
}

// errAbsent says that no one is there to take an answer.
var errAbsent = errors.New("the asker is not connected")

// Deliver writes the answer to the asker's connections until one of them says GOT.
func (c *Channel) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	var kept route
	if err := json.Unmarshal(delivery.Reply.Route, &kept); err != nil {
		return exchange.DeliveryReceipt{}, fault.GiveUp("the route cannot be read", err)
	}

	last := errAbsent
	for _, one := range c.connected(func(s *session) bool { return s.holder() == kept.Token }) {
		last = one.answer(ctx, delivery.NativeID, kept.Message, markup.PlainText(delivery.Reply.Response.Parts))
		if last == nil {
			return exchange.DeliveryReceipt{Detail: "GOT"}, nil
		}
	}
	return exchange.DeliveryReceipt{}, fault.RetryIn(0, last.Error(), last)
}
