// Connector-slack brings outgoing webhooks of Slack and Mattermost to an agent, and posts its answers by an incoming webhook.
// It keeps nothing: the server recognises a message that comes twice, and an answer says itself where it belongs.
//
//	INBOX_URL=https://agents.example/v1/connectors/slack/messages INBOX_SECRET=… \
//	HOOK_TOKEN=… POST_URL=https://hooks.slack.com/services/… LISTEN=127.0.0.1:9100 connector-slack
//
// The messenger calls /hook, the server calls /answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	settings := connector{
		inbox: os.Getenv("INBOX_URL"), secret: os.Getenv("INBOX_SECRET"), token: os.Getenv("HOOK_TOKEN"), post: os.Getenv("POST_URL"),
		client: &http.Client{Timeout: 10 * time.Second},
	}
	if settings.inbox == "" || settings.secret == "" || settings.token == "" || settings.post == "" {
		return errors.New("INBOX_URL, INBOX_SECRET, HOOK_TOKEN and POST_URL must be set")
	}
	address := os.Getenv("LISTEN")
	if address == "" {
		address = "127.0.0.1:9100"
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Println("listening on", listener.Addr())
	server := &http.Server{Handler: settings.routes(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	go func() {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(limited)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
