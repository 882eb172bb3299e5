package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"inbox/identity"
	"inbox/internal/peer"
)

// RunDemo starts a throw-away server with one echo agent, has a Mastodon-like server mention it, a DKIM-signed mail
// and an A2A task arrive, has a second agent ask for consent, and prints the conversations with what each side proved.
// Everything is on loopback and removed afterwards. It fails unless all replies verify.
func RunDemo(ctx context.Context, out io.Writer) (err error) {
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
	server, err := New(ctx, config)
	if err != nil {
		return err
	}
	if err := errors.Join(server.addBooker(), server.Listen()); err != nil {
		return errors.Join(err, server.Close())
	}
	return server.showOff(ctx, demo, out)
}

// showOff runs the server while the demo talks to it.
func (s *Server) showOff(ctx context.Context, demo *peer.Demo, out io.Writer) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	operator := s.Operator()
	description, err := s.describe(ctx, operator)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	go func() { ended <- s.Run(running) }()
	err = demo.Run(running, description, out)
	stop()
	return errors.Join(err, <-ended)
}

// describe tells the demo's peers where the server is and what its operator would have published.
func (s *Server) describe(ctx context.Context, operator *Operator) (peer.Server, error) {
	agent := s.Agents()[0]
	token, _, err := operator.Tokens.Create(ctx, "demo-peer", agent.Name)
	if err != nil {
		return peer.Server{}, err
	}
	name, value := s.email.DNSRecord()
	return peer.Server{
		PublicURL: s.config.PublicURL, Domain: s.config.Domain, Agent: agent.Name, Booker: demoBooker, SMTPAddr: s.MailAddr(), Token: token,
		DKIM: peer.DNSRecord{Name: name, Value: value},
		Evidence: func(ctx context.Context, messageID string) ([]identity.Evidence, error) {
			shown, err := operator.Messages.Show(ctx, messageID)
			return shown.Turn.Message.Sender.Identities, err
		},
	}, nil
}

// demoConfig is the development configuration on free ports, answering through the demo's mail server.
func demoConfig(ctx context.Context, directory string, demo *peer.Demo) (*Config, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	config, err := LoadConfig("", []string{
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
