package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/internal/demo"
	"inbox/internal/systemd"
	"inbox/operator"
)

func newServe() *cobra.Command {
	var newIdentity bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Runs the server until it gets SIGINT or SIGTERM. Then /readyz returns 503, the server continues to serve for the time of drain,
stops accepting, finishes what runs within shutdown_grace and exits with 0. A second signal ends it at once, with 3. On
SIGHUP it reads its configuration again, as for "inbox reload". Under systemd it reports when it is ready
and takes sockets (docs/ops/systemd.md).

Without a configuration file it is in development mode: every listener is on loopback, private addresses are
allowed, mail is captured instead of sent, and the agent "echo" answers everyone. With a file it prints the addresses and links of
its agents, but only to a terminal.

The server refuses a start that would silently give the agents another identity: the database or the secret key is missing, empty or
not the same as before, or a newer version changed the database. --new-identity starts anyway (not with a
newer database): agents get new keys, and what only the old keys open is lost.`,
		Example: "  inbox serve\n  inbox serve --config /etc/inbox/inbox.toml",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			outliveReaders()
			if err := checkAddresses(); err != nil {
				return err
			}
			manager, err := systemd.Open()
			if err != nil {
				return err
			}
			if domainFlag(cmd) != "" {
				return usageError{errors.New("--domain: the server serves all of its domains; leave the flag out")}
			}
			config, err := loadWhole(cmd)
			if err != nil {
				return err
			}
			config.NewIdentity = newIdentity
			for _, further := range config.Hosted {
				further.NewIdentity = newIdentity
			}
			limit := limitMemory()
			server, err := inbox.New(cmd.Context(), config)
			if err != nil {
				return err
			}
			logMemoryLimit(limit)
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			defer mindHangups(ctx, stop, server, manager)()
			server.Inherit(manager)
			if err := server.Listen(); err != nil {
				return errors.Join(err, server.Close())
			}
			defer tellManager(ctx, manager)()
			defer settleMemory()()
			greet(cmd, server)
			return server.Run(ctx)
		},
	}
	cmd.Flags().BoolVar(&newIdentity, "new-identity", false, "start without the database or the secret key of data_dir, with new keys")
	return cmd
}

// greeting tells a newcomer what runs where, and what to try.
func greeting(server *inbox.Server) string {
	config := server.Config()
	agent := server.Agents()[0]
	return fmt.Sprintf(`inbox is in development mode: only this machine can reach it, mail is captured, no sender is refused.

  address   %[1]s
  chat      %[2]s/@%[3]s/chat
  actor     %[2]s/agents/%[3]s
  card      %[2]s/a2a/%[3]s/.well-known/agent-card.json
  mail      %[3]s@%[4]s by SMTP at %[5]s
  console   %[2]s/console, sign in with the token in %[8]s
  API       %[2]s/api/v1, with the same token
  log       standard error
  data      %[6]s

Try:
  curl '%[2]s/.well-known/webfinger?resource=acct:%[3]s@%[7]s'
  inbox tokens create me        # then send an A2A message with the token:
  curl %[2]s/a2a/%[3]s -H 'Authorization: Bearer TOKEN' -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' \
    -d '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}'
  inbox chat hello              # talk to the agent from this machine
  inbox demo                    # all three networks at once, on a throw-away server

`, agent.Address, config.PublicURL, agent.Name, server.MailDomain(), server.MailAddr(), config.DataDir, config.Domain,
		filepath.Join(config.DataDir, operator.AdminTokenFile))
}

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show conversations on a throw-away server",
		Long: `Starts a throw-away server. A Mastodon-like server mentions its agent, a DKIM-signed mail arrives and
another agent sends an A2A task; a second agent asks for consent before it acts. You see what each side proved about the other.
Everything stays on this machine and is removed afterwards. Exit code 0 means that all replies verified.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
}
