package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"inbox"
	"inbox/internal/systemd"
)

// cgroupRoot is where Linux shows control groups; elsewhere it is not there, and then there is no limit to find.
const cgroupRoot = "/sys/fs/cgroup"

// limitMemory lets the collector work harder before the memory of the control group is used up, where the operator did not
// set GOMEMLIMIT: a tenth stays for what the Go heap does not count. It returns the limit; zero = there is none.
func limitMemory() int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}

	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}

	found := cgroupLimit(cgroupRoot, membership)
	if found == 0 {
		return 0
	}

	limit := found / 10 * 9
	debug.SetMemoryLimit(limit)
	return limit
}

// logMemoryLimit comes after the log is set up.
func logMemoryLimit(limit int64) {
	if limit > 0 {
		slog.Info("memory is limited to nine tenths of the control group's; GOMEMLIMIT in the environment wins", "bytes", limit)
	}
}

// settledAfter is how long after its start a server has done what it does once: migrations, keys, the first sweeps.
const settledAfter = time.Second

// settleMemory returns to the system what only the start needed. Left alone, the collector would let the heap grow to three times what it was during
// the start before it looked again, and the system would have to keep all of it.
func settleMemory() (end func()) {
	timer := time.AfterFunc(settledAfter, debug.FreeOSMemory)
	return func() { timer.Stop() }
}

// cgroupLimit is the smallest memory limit of the groups that a process is in, in bytes; zero = none. Membership is the
// content of /proc/self/cgroup (cgroups(7)): "0::/path" for version 2, "4:memory:/path" for version 1. Limits of the groups
// above count, too, and inside of a container the path may be that of the host: what is not there is left out.
func cgroupLimit(root string, membership []byte) int64 {
	least := int64(0)
	for line := range bytes.Lines(membership) {
		fields := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		if len(fields) != 3 {
			continue
		}

		base, file := root, "memory.max"
		if fields[0] != "0" || fields[1] != "" {
			if !hasController(fields[1], "memory") {
				continue
			}
			base, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		}

		for path := filepath.Clean("/" + fields[2]); ; path = filepath.Dir(path) {
			if limit := readLimit(filepath.Join(base, path, file)); limit > 0 && (least == 0 || limit < least) {
				least = limit
			}
			if path == "/" {
				break
			}
		}
	}

	return least
}

func hasController(list, wanted string) bool {
	for name := range strings.SplitSeq(list, ",") {
		if name == wanted {
			return true
		}
	}
	return false
}

// readLimit reads a number of bytes; zero for "max", for what version 1 writes instead of it, and for no file.
func readLimit(path string) int64 {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil || limit <= 0 || limit >= math.MaxInt64&^(1<<20-1) {
		return 0
	}
	return limit
}

// outliveReaders lets writes to the log fail once its reader is gone: Go ends a process by SIGPIPE that writes to a broken standard
// output or error. The signal is caught and not ignored, because programs that the server starts would inherit that.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// mindHangups lets the server read its configuration again for SIGHUP, which is what supervisors send for that. In
// development mode at a terminal it means that the terminal is gone, and the server stops. It returns what ends it.
func mindHangups(ctx context.Context, stop context.CancelFunc, server *inbox.Server, manager *systemd.Manager) (end func()) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP)
	leaves := server.Config().Development && isTerminal(os.Stdin)
	go func() {
		for {
			select {
			case <-received:
				if leaves {
					stop()
					return
				}
				notify(manager, systemd.Reloading()...)
				_, _ = server.Reload(ctx) // says in the log what came of it
				notify(manager, systemd.Ready)
			case <-ctx.Done():
				return
			}
		}
	}()

	return func() { signal.Stop(received) }
}

// tellManager tells the service manager that the server is ready, that it stops when ctx ends, and that it lives until the function it
// returns is called.
func tellManager(ctx context.Context, manager *systemd.Manager) (end func()) {
	if left := manager.Left(); len(left) > 0 {
		slog.Warn("sockets of the service manager are not served: correct FileDescriptorName= or turn their listeners on", "names", strings.Join(left, " "))
	}
	notify(manager, systemd.Ready)
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	go manager.Watch(watching)
	cancel := context.AfterFunc(ctx, func() { notify(manager, systemd.Stopping) })
	return func() { cancel(); stop() }
}

// notify logs what does not work: a server is no worse without its manager.
func notify(manager *systemd.Manager, states ...string) {
	if err := manager.Notify(states...); err != nil {
		slog.Warn("the service manager does not hear what the server does", "error", err)
	}
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

// atTerminal reports whether what is written to out is read by a person at a terminal.
func atTerminal(out io.Writer) bool {
	file, is := out.(*os.File)
	return is && isTerminal(file)
}

// stopOnSignal lets the command end on the first SIGINT or SIGTERM. The second one ends the process at once: what was
// accepted is stored, and the next start goes on with it.
func stopOnSignal(stop context.CancelFunc) {
	received := make(chan os.Signal, 2)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	<-received
	stop()
	<-received
	fmt.Fprintln(os.Stderr, "inbox: a second signal: the process ends at once")
	os.Exit(exitAtOnce)
}
