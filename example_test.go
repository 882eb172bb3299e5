package inbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"

	"inbox"
	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

// A program that embeds the server: its agent is a Go function, which a guest asks by chat.
func Example() {
	if err := converse(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// You said: It is hot today. I water the plants.
}

func converse() (err error) {
	directory, err := os.MkdirTemp("", "inbox-example-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	config, err := inbox.LoadConfig("", []string{
		"INBOX_DATA_DIR=" + directory, "INBOX_PUBLIC_URL=http://localhost:8080", "INBOX_HTTP_LISTEN=127.0.0.1:0", "INBOX_SMTP_LISTEN=", "INBOX_LOG_LEVEL=error",
	})
	if err != nil {
		return err
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server, err := inbox.New(ctx, config)
	if err != nil {
		return err
	}
	profile := exchange.AgentProfile{Name: "gardener", DisplayName: "Gardener", Summary: "Waters the plants.", Version: "1.0.0", Kind: "embedded"}
	if err := server.Register(profile, agents.Func(water), agents.Settings{Unverified: agents.UnverifiedAnswer}); err != nil {
		return err
	}
	if err := server.Listen(); err != nil {
		return err
	}
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()

	question := []byte(`{"agent": "gardener", "message": "It is hot today."}`)
	response, err := http.Post("http://"+server.HTTPAddr().String()+"/v1/chat", "application/json", bytes.NewReader(question))
	if err != nil {
		return err
	}
	var answer struct{ Reply string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	_ = response.Body.Close()
	fmt.Println(answer.Reply)

	stop()
	return <-ended
}

func water(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	text := "You said: " + normalized.PlainText(turn.Message.Parts) + " I water the plants."
	return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text(text)}})
}
