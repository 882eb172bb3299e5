// Package systemd speaks with the service manager that started the program: it tells that the server is ready, reloads or stops
// (sd_notify(3)), keeps its watchdog quiet, and takes the sockets that the manager has opened (sd_listen_fds(3)). Without such a
// manager all of it does nothing.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// States of sd_notify(3).
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	alive    = "WATCHDOG=1"
)

// firstSocket is the descriptor of the first socket that was passed (SD_LISTEN_FDS_START).
const firstSocket = 3

// Manager is the service manager of this process.
type Manager struct {
	socket   string // to which states are sent; empty = none
	watchdog time.Duration

	mu      sync.Mutex
	sockets map[string]net.Listener // by name, those that were not taken yet
}

// Open reads what the manager has left in the environment, and removes it there, because it is not meant for programs that this one
// starts. Errors are about sockets that cannot be used.
func Open() (*Manager, error) {
	own := strconv.Itoa(os.Getpid())
	m := &Manager{socket: os.Getenv("NOTIFY_SOCKET"), sockets: map[string]net.Listener{}}
	if micros, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && micros > 0 {
		if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == own {
			m.watchdog = time.Duration(micros) * time.Microsecond
		}
	}

	var err error
	if os.Getenv("LISTEN_PID") == own {
		err = m.inherit(os.Getenv("LISTEN_FDS"), strings.Split(os.Getenv("LISTEN_FDNAMES"), ":"))
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		err = errors.Join(err, os.Unsetenv(name))
	}
	return m, err
}

func (m *Manager) inherit(count string, names []string) error {
	number, err := strconv.Atoi(count)
	if err != nil || number < 0 || number > 64 {
		return fmt.Errorf("LISTEN_FDS: %q is not a number of sockets up to 64", count)
	}

	for i := range number {
		name := "unknown"
		if i < len(names) {
			name = names[i]
		}
		syscall.CloseOnExec(firstSocket + i)
		file := os.NewFile(uintptr(firstSocket+i), name)
		listener, err := net.FileListener(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("the socket %q of the service manager: %w; write ListenStream=", name, err)
		}
		if m.sockets[name] != nil {
			return errors.Join(fmt.Errorf("the service manager passed two sockets %q: write one ListenStream= for each, such as [::]:443, "+
				"which takes IPv4 as well", name), listener.Close())
		}
		m.sockets[name] = listener
	}
	return nil
}

// Take returns the socket of a name (FileDescriptorName=), once; nil without one.
func (m *Manager) Take(name string) net.Listener {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	listener := m.sockets[name]
	delete(m.sockets, name)
	return listener
}

// Left are the names of the sockets that were not taken, in order.
func (m *Manager) Left() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.sockets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Notify tells the manager of states.
func (m *Manager) Notify(states ...string) error {
	if m.socket == "" {
		return nil
	}

	connection, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"}) // "@" begins an abstract name
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	_, err = connection.Write([]byte(strings.Join(states, "\n") + "\n"))
	if err := errors.Join(err, connection.Close()); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}

// Reloading is the state at the beginning of a reload, with the time that Type=notify-reload wants. Ready ends it.
func Reloading() []string {
	return []string{"RELOADING=1", "MONOTONIC_USEC=" + strconv.FormatInt(monotonicMicros(), 10)}
}

// Watch keeps the watchdog quiet until ctx ends: it finds a process that hangs, not a database that is down.
func (m *Manager) Watch(ctx context.Context) {
	if m.watchdog == 0 || m.socket == "" {
		return
	}

	ticker := time.NewTicker(m.watchdog / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = m.Notify(alive) // a manager that cannot be told acts by itself
		case <-ctx.Done():
			return
		}
	}
}
