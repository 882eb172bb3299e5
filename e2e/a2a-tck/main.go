// Command a2a-tck is a whole inbox server for the conformance kit of the A2A project: its one agent behaves as the kit
// wants, and a proxy in front adds the bearer token that the kit cannot send. It is no product; see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"inbox"
	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
)

func main() {
	open := flag.Bool("open", false, "leave the task of a message without a special prefix open, for the kit of 0.3")
	database := flag.String("database", "sqlite", "database_url of the server")
	flag.Parse()
	if err := run(*open, *database); err != nil {
		fmt.Fprintln(os.Stderr, "a2a-tck:", err)
		os.Exit(1)
	}
}

func run(open bool, database string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	directory, err := os.MkdirTemp("", "a2a-tck-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()

	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	grpc, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	config, err := configure(directory, database, web.Addr().String(), grpc.Addr().String())
	if err != nil {
		return err
	}

	server, token, err := prepare(ctx, config, script{open})
	if err != nil {
		return err
	}

	names := new(renamer)
	outside := forward(web, server.HTTPAddr().String(), token, names)
	defer func() { _ = outside.Close() }()
	outsideGRPC := forward(grpc, server.GRPCAddr(), token, names)
	defer func() { _ = outsideGRPC.Close() }()
	fmt.Println("http://" + web.Addr().String())
	return server.Run(ctx)
}

func configure(directory, database, web, grpc string) (*inbox.Config, error) {
	file := filepath.Join(directory, "inbox.toml")
	text := fmt.Sprintf(`
public_url = "http://%s"
domain = "%s"
data_dir = %q
database_url = %q
http.listen = "127.0.0.1:0"
smtp.listen = "off"
federation.allow_private = true
a2a.grpc_listen = "127.0.0.1:0"
a2a.grpc_address = "%s"
a2a.default_agent = "script"
log.level = "warn"

[[agents]]
name = "unused"
kind = "echo"
`, web, web, directory, database, grpc)

	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}

	return inbox.LoadConfig(file, nil)
}

// prepare makes the server, its agent and the token of the kit.
func prepare(ctx context.Context, config *inbox.Config, agent script) (*inbox.Server, string, error) {
	server, err := inbox.New(ctx, config)
	if err != nil {
		return nil, "", err
	}

	profile := exchange.AgentProfile{
		Name: "script", DisplayName: "Script", Summary: "Does what the conformance kit asks for.", Version: "1.0.0", Kind: "script",
	}

	settings := agents.Settings{Unverified: agents.UnverifiedRefuse, Access: identity.AccessPolicy{Access: identity.AccessVerified}}
	if err := server.Register(profile, agent, settings); err != nil {
		return nil, "", err
	}

	operator, err := inbox.OpenOperator(ctx, config)
	if err != nil {
		return nil, "", err
	}

	token, _, err := operator.Tokens.Create(ctx, "kit", "")
	return server, token, errors.Join(err, operator.Close(), server.Listen())
}
