// Connector-slack brings messages of Slack and Mattermost to an agent and posts its answers: as an app of Slack, by its events
// and chat.postMessage, or by the outgoing and incoming webhooks that both products have. It keeps nothing: the server
// recognises a message that comes twice, and an answer says itself where it belongs.
//
//	INBOX_URL=https://agents.example/v1/connectors/slack/messages INBOX_SECRET=… \
//	SLACK_SIGNING_SECRET=… SLACK_BOT_TOKEN=xoxb-… LISTEN=127.0.0.1:9100 connector-slack
//
// or, in place of the second line, HOOK_TOKEN=… POST_URL=https://hooks.slack.com/services/… for webhooks. Slack calls /events,
// an outgoing webhook calls /hook, the server calls /answers.
package main

import (
	"cmp"
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
		signing: os.Getenv("SLACK_SIGNING_SECRET"), bot: os.Getenv("SLACK_BOT_TOKEN"), api: cmp.Or(os.Getenv("SLACK_API"), "https://slack.com/api"),
		client: &http.Client{Timeout: 10 * time.Second},
	}

	app, webhooks := settings.signing != "" && settings.bot != "", settings.token != "" && settings.post != ""
	if settings.inbox == "" || settings.secret == "" || app == webhooks {
		return errors.New("INBOX_URL and INBOX_SECRET must be set, and either SLACK_SIGNING_SECRET and SLACK_BOT_TOKEN, or HOOK_TOKEN and POST_URL")
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
