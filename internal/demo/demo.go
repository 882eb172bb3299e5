// Package demo shows the server at work: a throw-away one, to which three networks write. It is what inbox demo runs; the peers are in
// package peer.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"strings"
	"time"

	"inbox"
	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/peer"
	"inbox/normalized"
	"inbox/policypart"
)

// Run starts a throw-away server with one echo agent, has a Mastodon-like server mention it, a DKIM-signed mail
// and an A2A task arrive, has a second agent ask for consent, and prints the conversations with what each side proved.
// Everything is on loopback and removed afterwards. It fails unless all replies verify.
func Run(ctx context.Context, out io.Writer) (err error) {
	directory, err := os.MkdirTemp("", "inbox-demo-*")
	if err != nil {
		return fmt.Errorf("make a directory for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()

	demo, err := peer.NewDemo()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, demo.Close()) }()

	config, err := demoConfig(ctx, directory, demo)
	if err != nil {
		return err
	}

	server, err := inbox.New(ctx, config)
	if err != nil {
		return err
	}
	if err := errors.Join(addBooker(server), server.Listen()); err != nil {
		return errors.Join(err, server.Close())
	}

	return showOff(ctx, server, demo, out)
}

// showOff runs the server while the demo talks to it.
func showOff(ctx context.Context, server *inbox.Server, demo *peer.Demo, out io.Writer) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	operator := server.Operator()
	description, err := describe(ctx, server, operator)
	if err != nil {
		return errors.Join(err, server.Close())
	}

	go func() { ended <- server.Run(running) }()
	err = demo.Run(running, description, out)
	stop()
	return errors.Join(err, <-ended)
}

// describe tells the demo's peers where the server is and what its operator would have published.
func describe(ctx context.Context, server *inbox.Server, operator *inbox.Operator) (peer.Server, error) {
	agent := server.Agents()[0]
	token, _, err := operator.Tokens.Create(ctx, "demo-peer", agent.Name)
	if err != nil {
		return peer.Server{}, err
	}

	records, err := operator.Doctor.DNSRecords(ctx)
	if err != nil {
		return peer.Server{}, err
	}

	key := peer.DNSRecord{}
	for _, record := range records {
		if strings.Contains(record.Name, "._domainkey.") && key.Name == "" {
			key = peer.DNSRecord{Name: record.Name, Value: record.Value}
		}
	}

	return peer.Server{
		PublicURL: server.Config().PublicURL, Domain: server.Config().Domain, Agent: agent.Name, Booker: demoBooker, SMTPAddr: server.MailAddr(), Token: token,
		DKIM: key,
		Evidence: func(ctx context.Context, messageID string) ([]identity.Evidence, error) {
			shown, err := operator.Messages.Show(ctx, messageID)
			return shown.Turn.Message.Sender.Identities, err
		},
	}, nil
}

// demoConfig is the development configuration on free ports, answering through the demo's mail server.
func demoConfig(ctx context.Context, directory string, demo *peer.Demo) (*inbox.Config, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}

	config, err := inbox.LoadConfig("", []string{
		"INBOX_DATA_DIR=" + directory,
		"INBOX_HTTP_LISTEN=127.0.0.1:" + port,
		"INBOX_SMTP_LISTEN=127.0.0.1:0",
		"INBOX_DNS_RESOLVER=" + demo.Resolver(),
		"INBOX_MAIL_MODE=smarthost",
		"INBOX_MAIL_SMARTHOST=smtp://" + demo.Smarthost(),
		"INBOX_LOG_LEVEL=error",
	})
	if err != nil {
		return nil, fmt.Errorf("configure the demo: %w", err)
	}

	config.ShutdownGrace = 2 * time.Second
	return config, nil
}

// freePort asks the operating system: the port is part of the agent's address, so it is needed before the start.
func freePort(ctx context.Context) (string, error) {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}

// demoBooker is the demo's second agent: it acts in a person's name and therefore asks for consent first.
const demoBooker = "booker"

// addBooker registers the agent with the server of the demo.
func addBooker(server *inbox.Server) error {
	return server.Register(exchange.AgentProfile{
		Name: demoBooker, DisplayName: "Booker", Summary: "Books a table, if you agree.", Version: "1.0.0", Kind: "demo",
	}, agents.Func(book), agents.Settings{
		Unverified: agents.UnverifiedRefuse, Access: identity.AccessPolicy{Access: identity.AccessVerified},
	})
}

// book demands consent and answers once it was granted.
func book(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	response := normalized.Response{InReplyTo: turn.Message.ID, ThreadID: turn.Message.ThreadID}
	if resolution := turn.Message.PolicyResolution; resolution != nil && resolution.Outcome == policypart.OutcomeGranted {
		response.Parts = []normalized.Part{normalized.Text("Thank you. The table is booked for eight o'clock.")}
		return normalized.Whole(response)
	}

	response.Status = policypart.ResponseStatus(policypart.ConsentRequired)
	response.Parts = []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{
		Kind: policypart.ConsentRequired, Title: "May I book a table in your name?", ActionLabel: "Agree or decline",
		Message: "I want to book a table for two, tonight at eight.", Scopes: []string{"table.book"},
	}}}
	return normalized.Whole(response)
}
