// Command channel is a server with one channel more: agents are reached over a protocol of lines on TCP, beside the fediverse,
// mail and A2A. LINE_LISTEN is its address.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"inbox"
	"inbox/docs/examples/channel/line"
	"inbox/exchange"
)

func main() {
	if err := run(os.Getenv("INBOX_CONFIG"), cmp.Or(os.Getenv("LINE_LISTEN"), "127.0.0.1:7077")); err != nil {
		log.Fatal(err)
	}
}

func run(file, listen string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	config, err := inbox.LoadConfig(file, os.Environ())
	if err != nil {
		return err
	}
	channel := line.New(listen)
	server, err := inbox.New(ctx, config, func(node inbox.Node) (exchange.Module, error) { return channel.Module(node), nil })
	if err != nil {
		return err
	}

	if err := server.Listen(); err != nil {
		return err
	}
	fmt.Println("listening on", channel.Addr())
	return server.Run(ctx)
}
