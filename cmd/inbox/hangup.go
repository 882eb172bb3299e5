package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"inbox"
)

// mindHangups keeps SIGHUP from killing the server, which is what supervisors send for "read your settings again". In
// development mode at a terminal it means that the terminal is gone, and the server stops. It returns what ends it.
func mindHangups(ctx context.Context, stop context.CancelFunc, config *inbox.Config) (end func()) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP)
	leaves := config.Development && isTerminal(os.Stdin)
	go func() {
		for {
			select {
			case <-received:
				if leaves {
					stop()
					return
				}
				slog.Info("SIGHUP changes nothing: settings are read at the start, so restart the server to change them")
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { signal.Stop(received) }
}

// isTerminal reports whether a person sits at a file.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	nothing, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, nothing)
}
