package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"inbox/identity"
)

// conversationLimit bounds each conversation of the demo.
const conversationLimit = 30 * time.Second

// Server is what the demo has to know about the server that it talks to.
type Server struct {
	PublicURL string    // where HTTP is reached, without a slash at the end
	Domain    string    // what stands behind the @ of the agent's address, with its port if there is one
	Agent     string    // name of the agent
	Booker    string    // name of an agent that asks for consent before it answers; empty = the demo leaves it out
	SMTPAddr  string    // host:port where mail is taken
	Token     string    // A2A bearer token for this agent
	DKIM      DNSRecord // the server's public key, as its operator would publish it

	// Evidence returns what the server recorded about the sender of a message with the id of Conversation.MessageID.
	Evidence func(ctx context.Context, messageID string) ([]identity.Evidence, error)
}

func (s Server) address() string { return "@" + s.Agent + "@" + s.Domain }

func (s Server) cardURL() string {
	return s.PublicURL + "/a2a/" + s.Agent + "/.well-known/agent-card.json"
}

// Demo is a fediverse account, a mailbox and an A2A client that ask one agent a question each, all at the same time.
// The peers run before the server does, because the server is configured with their addresses.
type Demo struct {
	fediverse *Fediverse
	mail      *Mail
}

// NewDemo starts the peers. Close stops them.
func NewDemo() (*Demo, error) {
	var demo Demo
	var group errgroup.Group
	group.Go(func() (err error) { demo.fediverse, err = NewFediverse(FediverseOptions{}); return err })
	group.Go(func() (err error) { demo.mail, err = NewMail(MailOptions{}); return err })
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, demo.Close())
	}
	return &demo, nil
}

// Resolver returns host:port of the name server that the server under test has to ask (dns.resolver).
func (d *Demo) Resolver() string { return d.mail.Resolver() }

// Smarthost returns host:port of the SMTP server that takes the server's answers (mail.smarthost), without TLS.
func (d *Demo) Smarthost() string { return d.mail.SMTPAddr() }

// Close stops the peers.
func (d *Demo) Close() error {
	var errs []error
	if d.fediverse != nil {
		errs = append(errs, d.fediverse.Close())
	}
	if d.mail != nil {
		errs = append(errs, d.mail.Close())
	}
	return errors.Join(errs...)
}

// scene is one conversation of the demo and how it is told.
type scene struct {
	title    string
	question string
	proven   string // how the list of what the asker checked begins
	ask      func(ctx context.Context, question string) (Conversation, error)

	demand       Demand // what the agent asked back; empty = nothing
	conversation Conversation
	evidence     []identity.Evidence
	err          error
	done         chan struct{}
}

// Run has the conversations and prints them to out, with colours when out is a terminal and NO_COLOR is not
// set. It fails unless all answers verify and the server recorded who asked.
func (d *Demo) Run(ctx context.Context, server Server, out io.Writer) error {
	client, err := NewA2A(A2AOptions{Token: server.Token})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing to lose

	d.mail.Publish(server.DKIM)
	started := time.Now()
	scenes := d.scenes(server, client)
	for _, one := range scenes {
		go one.play(ctx, server)
	}

	paper := newPaper(out)
	paper.opening(server.address())
	var errs []error
	for _, one := range scenes {
		<-one.done
		paper.scene(one)
		errs = append(errs, one.failure())
	}

	if err := errors.Join(errs...); err != nil {
		return err
	}

	return paper.ending(len(scenes), time.Since(started))
}

func (d *Demo) scenes(server Server, client *A2A) []*scene {
	scenes := []*scene{{
		title:    "Fediverse: Alice mentions the agent from a Mastodon-like server",
		question: "Hello from the fediverse! Do you hear me?",
		proven:   "Alice's server checked who answered",
		ask: func(ctx context.Context, question string) (Conversation, error) {
			return d.fediverse.Ask(ctx, server.PublicURL, server.address(), question)
		},
	}, {
		title:    "Email: Alice writes to the same address, signed with DKIM",
		question: "Hello by mail! Do you read me?",
		proven:   "Alice's mail server checked who answered",
		ask: func(ctx context.Context, question string) (Conversation, error) {
			return d.mail.Ask(ctx, server.SMTPAddr, server.address(), "A first question", question)
		},
	}, {
		title:    "A2A: another agent sends a task",
		question: "Hello from another agent! Are you there?",
		proven:   "The other agent checked who answered",
		ask: func(ctx context.Context, question string) (Conversation, error) {
			return client.Ask(ctx, server.cardURL(), question)
		},
	}}

	if server.Booker != "" {
		scenes = append(scenes, d.consent(server))
	}

	for _, one := range scenes {
		one.done = make(chan struct{})
	}

	return scenes
}

// consent is the conversation with an agent that has to ask before it acts. Mail scanners open its link first.
func (d *Demo) consent(server Server) *scene {
	asked := &scene{
		title:    "Consent: Alice mails an agent that acts in her name, so it asks her first",
		question: "Please book a table for two tonight.",
		proven:   "Alice's mail server checked who answered",
	}

	asked.ask = func(ctx context.Context, question string) (answer Conversation, err error) {
		asked.demand, answer, err = d.mail.AskWithConsent(ctx, server.SMTPAddr, "@"+server.Booker+"@"+server.Domain, "A table", question)
		return answer, err
	}
	return asked
}

// play has the conversation and asks the server what it recorded about it.
func (s *scene) play(ctx context.Context, server Server) {
	defer close(s.done)
	ctx, cancel := context.WithTimeoutCause(ctx, conversationLimit, fmt.Errorf("waited %s", conversationLimit))
	defer cancel()

	if s.conversation, s.err = s.ask(ctx, s.question); s.err != nil {
		return
	}

	s.evidence, s.err = server.Evidence(ctx, s.conversation.MessageID)
	switch {
	case s.err != nil:
		s.err = fmt.Errorf("read what the server recorded about %s: %w", s.conversation.MessageID, s.err)
	case len(s.evidence) == 0:
		s.err = fmt.Errorf("the server recorded no evidence about the sender of %s", s.conversation.MessageID)
	}
}

func (s *scene) failure() error {
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.title, s.err)
}
