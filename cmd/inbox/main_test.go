package main

import (
	"context"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"inbox": func() {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
			stop()
			os.Exit(code)
		},
	})
}

// TestScripts runs the commands as an operator types them; each file in testdata/script is one story.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: func(env *testscript.Env) error {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // the port is free for the server of a story
		if err != nil {
			return err
		}
		env.Setenv("FREE", listener.Addr().String())
		return listener.Close()
	}})
}
