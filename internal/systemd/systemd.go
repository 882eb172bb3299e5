// Package systemd speaks with the service manager that started the program: it tells that the server is ready, reloads or stops
// (sd_notify(3)), keeps its watchdog quiet, and takes the sockets that the manager has opened (sd_listen_fds(3)). Without such a
// manager all of it does nothing. go-systemd reads what the manager passes; only Notify is our own code.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// States of sd_notify(3).
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
)

// Manager is the service manager of this process.
type Manager struct {
	socket   string // to which states are sent; empty = none
	watchdog time.Duration

	mu      sync.Mutex
	sockets map[string]net.Listener // by name, those that were not taken yet
}

// Open reads what the manager has left in the environment, and removes it there, because it is not meant for programs that this one
// starts. Errors are about sockets that cannot be used, or a watchdog without a time.
func Open() (*Manager, error) {
	m := &Manager{socket: os.Getenv("NOTIFY_SOCKET"), sockets: map[string]net.Listener{}}
	watchdog, err := daemon.SdWatchdogEnabled(true)
	m.watchdog = watchdog
	return m, errors.Join(err, m.inherit(activation.Files(true)), os.Unsetenv("NOTIFY_SOCKET"))
}

// inherit listens on the sockets that the manager passed. activation.ListenersWithNames would leave out a socket on which nothing can
// listen, such as one of ListenDatagram=, and say nothing (TestLibraryLeavesOutWhatItCannotUse).
func (m *Manager) inherit(files []*os.File) error {
	for _, file := range files {
		name := file.Name()
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

// Notify tells the manager of states. daemon.SdNotify reads NOTIFY_SOCKET at each call: it could tell a second state only if the
// programs that the server starts inherited the address, and then they could speak for it (TestLibraryForgetsWhereToNotify).
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
	return []string{daemon.SdNotifyReloading, strings.TrimSuffix(daemon.SdNotifyMonotonicUsec(), "\n")}
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
			_ = m.Notify(daemon.SdNotifyWatchdog) // a manager that cannot be told acts by itself
		case <-ctx.Done():
			return
		}
	}
}
