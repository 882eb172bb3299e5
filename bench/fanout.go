package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"inbox/e2e/instance"
	"inbox/engine/store"
)

// The followers of the fan-out: so many on so many servers, of which one in twenty is slow and one in twenty dead.
const (
	fanFollowers = 10_000
	fanHosts     = 500
	fanEvery     = 20
	fanSlowness  = 2 * time.Second
	fanPatience  = 60 * time.Second
)

// fan is the servers of the followers. Each has an address of its own, so that it is a host of its own.
type fan struct {
	servers []*http.Server
	hosts   []string // host:port

	mu      sync.Mutex
	arrived map[string]time.Time // by host, of the first copy
	again   int                  // copies beside the first
	done    chan struct{}        // closed when every living host has one
	living  int
}

func newFan() (*fan, error) {
	f := &fan{arrived: map[string]time.Time{}, done: make(chan struct{})}
	for i := range fanHosts {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}

		f.hosts = append(f.hosts, listener.Addr().String())
		handler := f.take
		switch {
		case i%(2*fanEvery) == 0: // dead: no one listens
			if err := listener.Close(); err != nil {
				return nil, err
			}
			continue
		case i%fanEvery == 0: // dead: takes connections and never answers
			handler = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		case i%fanEvery == 1:
			f.living++
			handler = func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-time.After(fanSlowness):
					f.take(w, r)
				case <-r.Context().Done():
				}
			}
		default:
			f.living++
		}

		server := &http.Server{Handler: http.HandlerFunc(handler), ReadHeaderTimeout: 10 * time.Second}
		f.servers = append(f.servers, server)
		go func() { _ = server.Serve(listener) }()
	}

	return f, nil
}

func (f *fan) take(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusAccepted)
	f.mu.Lock()
	defer f.mu.Unlock()

	if _, known := f.arrived[r.Host]; known {
		f.again++
		return
	}

	f.arrived[r.Host] = time.Now()
	if len(f.arrived) == f.living {
		close(f.done)
	}
}

func (f *fan) close() {
	for _, server := range f.servers {
		_ = server.Close()
	}
}

// enlist writes the followers into the server's database, as their Follows would have.
func (f *fan) enlist(ctx context.Context, server *instance.Instance) error {
	options := store.Options{DataDir: filepath.Join(server.Directory, "data")}
	if server.Settings.Database != "" {
		options = store.Options{URL: server.Settings.Database, Connections: 8}
	}

	opened, err := store.Open(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()

	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)

	for i := range fanFollowers {
		group.Go(func() error {
			origin := "http://" + f.hosts[i%fanHosts]
			actor := fmt.Sprintf("%s/users/%d", origin, i)
			value, err := json.Marshal(map[string]any{"inbox": actor + "/inbox", "shared_inbox": origin + "/inbox", "since": time.Now().UTC()})
			if err != nil {
				return err
			}
			return opened.State().Put(ctx, "activitypub.follower.echo", actor, value, time.Time{})
		})
	}

	return group.Wait()
}

// measureFanOut answers one public question. A latency is the time from the question until a follower's server has the
// answer.
func measureFanOut(ctx context.Context, w *world, server *instance.Instance) (measurement, error) {
	target, err := w.inbox("echo")
	if err != nil {
		return measurement{}, err
	}
	if _, err := w.meetAndHear(target); err != nil {
		return measurement{}, err
	}

	f, err := newFan()
	if err != nil {
		return measurement{}, err
	}
	defer f.close()

	if err := f.enlist(ctx, server); err != nil {
		return measurement{}, err
	}

	select { // a node looks for a first follower every five seconds
	case <-time.After(6 * time.Second):
	case <-ctx.Done():
		return measurement{}, ctx.Err()
	}

	started := time.Now()
	if err := w.post(target, w.pools.echoNotes[persons]); err != nil {
		return measurement{}, err
	}

	select {
	case <-f.done:
	case <-time.After(fanPatience):
	case <-ctx.Done():
		return measurement{}, ctx.Err()
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	m := measurement{errors: f.living - len(f.arrived) + f.again, elapsed: time.Since(started)}
	m.err = fmt.Errorf("%d of %d living servers have the answer, %d copies too many", len(f.arrived), f.living, f.again)

	for _, at := range f.arrived {
		m.latencies = append(m.latencies, at.Sub(started))
	}

	return m, m.problem()
}
