// Command embedded is a program with the whole server inside: its agent is a Go function. It demands consent before it
// acts, which parks the question until the asker agreed, even if the program is restarted meanwhile.
package main

import (
	"context"
	"fmt"
	"iter"
	"log"
	"os"
	"os/signal"
	"syscall"

	"inbox"
	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

func main() {
	if err := run(os.Getenv("INBOX_CONFIG")); err != nil {
		log.Fatal(err)
	}
}

func run(file string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := inbox.LoadConfig(file, os.Environ())
	if err != nil {
		return err
	}

	server, err := inbox.New(ctx, config)
	if err != nil {
		return err
	}

	profile := exchange.AgentProfile{Name: "gardener", DisplayName: "Gardener", Summary: "Waters the plants.", Version: "1.0.0", Kind: "embedded"}
	if err := server.Register(profile, agents.Func(water), agents.Settings{Unverified: agents.UnverifiedRefuse}); err != nil {
		return err
	}
	if err := server.Listen(); err != nil {
		return err
	}

	fmt.Println("listening on", server.HTTPAddr())
	return server.Run(ctx)
}

// water asks first and waters then.
func water(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	if turn.Message.PolicyResolution != nil {
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("The plants are watered.")}})
	}
	return normalized.Whole(normalized.Response{
		Status: normalized.StatusInputRequired,
		Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{
			Kind: policypart.ConsentRequired, Title: "Shall I open the tap?", Message: "I am about to water the plants.",
		}}},
	})
}
