package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

const (
	oldTurns   = 100_000 // in the database before the server starts
	besideRate = 200     // messages a second while something else goes on
	bigEvery   = 500 * time.Millisecond
	bigWords   = 125_000 // about 1 MB
)

// The person who wrote half of the old turns.
const (
	oldPrincipal = "mailto:old@away.example"
	oldAddress   = "@old@away.example"
	oldChannel   = "email"
)

// beside is work that a server does beside accepting messages.
type beside struct {
	name, about string
	more        string // settings
	unindexed   bool   // the words of the old turns are not in the search index yet
	atStart     bool   // the work begins with the server
	// start begins the work, once messages come in, and returns when it is done or ctx ends.
	start func(ctx context.Context, w *world, server *instance.Instance) error
}

// besides begin with nothing, which the others are compared with.
func besides() []beside {
	command := func(arguments ...string) func(context.Context, *world, *instance.Instance) error {
		return func(ctx context.Context, _ *world, server *instance.Instance) error {
			_, err := server.Run(ctx, arguments...)
			return err
		}
	}
	return []beside{
		{name: "beside_nothing", about: "nothing else"},
		{name: "beside_start", about: "nothing else, in the first seconds of the server", atStart: true},
		{name: "beside_indexing", about: "the search index is made for all of them", unindexed: true, atStart: true},
		{name: "beside_retention", about: "all of them reach the end of `retention.messages`", more: "[retention]\nmessages = \"1h\"\n", atStart: true},
		{name: "beside_erasure", about: "`inbox erase` of a person who sent half of them", start: command("erase", oldPrincipal, "--yes")},
		{name: "beside_backup", about: "`inbox backup`", start: func(ctx context.Context, _ *world, server *instance.Instance) error {
			_, err := server.Run(ctx, "backup", filepath.Join(server.Directory, "backup"))
			return err
		}},
		{name: "beside_big_messages", about: fmt.Sprintf("a message of 1 MB of distinct words each %s", bigEvery), start: sendBig},
	}
}

func besideScenarios() []scenario {
	var list []scenario
	for _, b := range besides() {
		list = append(list, scenario{
			name:  b.name,
			about: fmt.Sprintf("signed deliveries acknowledged with 202, %d a second whatever the server does, in a database with %d messages; beside it: %s", besideRate, oldTurns, b.about),
			needs: needs{steadyNotes: true},
			more:  b.more,
			prepare: func(ctx context.Context, w *world, directory string) error {
				return w.prepareOld(ctx, directory, !b.unindexed)
			},
			run: func(ctx context.Context, w *world, server *instance.Instance) (measurement, error) {
				return w.measureBeside(ctx, b, server)
			},
		})
	}
	return list
}

// measureBeside sends at a fixed rate. A latency counts from the moment at which the message was due.
func (w *world) measureBeside(ctx context.Context, b beside, server *instance.Instance) (measurement, error) {
	target, err := w.inbox("busy")
	if err != nil {
		return measurement{}, err
	}
	notes, err := w.meet(target, w.pools.steadyNotes)
	if err != nil {
		return measurement{}, err
	}

	if !b.atStart {
		if err := awaitCalm(ctx, server); err != nil {
			return measurement{}, err
		}
	}

	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() {
		if b.start == nil {
			worked <- nil
			return
		}
		worked <- b.start(working, w, server)
	}()

	m, err := w.openLoop(ctx, besideRate, notes, func(note signedNote, _ time.Time) error { return w.post(target, note) })
	stop()
	if failed := <-worked; failed != nil && working.Err() == nil {
		return m, failed
	}
	return m, err
}

// awaitCalm waits until the server has finished its startup work: a second with less than 20 ms of processor time.
func awaitCalm(ctx context.Context, server *instance.Instance) error {
	before, err := server.ProcessorTime()
	for err == nil {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("the server is not calm after its start: %w", ctx.Err())
		}
		var now time.Duration
		if now, err = server.ProcessorTime(); err == nil && now-before < 20*time.Millisecond {
			return nil
		}
		before = now
	}
	return err
}

// sendBig sends messages of distinct words until ctx ends.
func sendBig(ctx context.Context, w *world, server *instance.Instance) error {
	_, err := w.withToken(ctx, server, func(peer load.A2APeer) (measurement, error) {
		for i := 0; ctx.Err() == nil; i++ {
			var text strings.Builder
			for range bigWords {
				fmt.Fprintf(&text, "%07x ", rand.N(1<<28))
			}
			if _, err := peer.Send(ctx, load.SendBody(fmt.Sprintf("big-%d", i), text.String(), true)); err != nil && ctx.Err() == nil {
				return measurement{}, fmt.Errorf("message of 1 MB: %w", err)
			}
			select {
			case <-time.After(bigEvery):
			case <-ctx.Done():
			}
		}
		return measurement{}, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// prepareOld puts the database with the old turns below a directory of a server. It is made once and copied.
func (w *world) prepareOld(ctx context.Context, directory string, indexed bool) error {
	if w.oldData == "" {
		made := filepath.Join(w.directory, "old")
		fmt.Fprintf(os.Stderr, "  fills a database with %d messages …\n", oldTurns)
		if err := w.makeOld(ctx, made); err != nil {
			return fmt.Errorf("fill a database: %w", err)
		}
		w.oldData = filepath.Join(made, instance.Data)
	}
	data := filepath.Join(directory, instance.Data)
	if err := os.CopyFS(data, os.DirFS(w.oldData)); err != nil || indexed {
		return err
	}
	words, err := filepath.Glob(filepath.Join(data, "search.db*"))
	for _, file := range words {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// makeOld fills a database and lets a server index it.
func (w *world) makeOld(ctx context.Context, directory string) error {
	if err := os.Mkdir(directory, 0o700); err != nil {
		return err
	}
	server, err := instance.New(w.binary, directory, w.settings())
	if err != nil {
		return err
	}
	if err := fillOld(ctx, filepath.Join(directory, instance.Data)); err != nil {
		return err
	}
	if err := server.Start(ctx); err != nil {
		return err
	}
	defer func() { _ = server.Kill() }()
	if err := w.awaitIndex(ctx); err != nil {
		return err
	}
	if _, err = server.Stop(ctx); err != nil {
		return err
	}
	return letRetain(ctx, filepath.Join(directory, instance.Data))
}

// letRetain makes retention due when the next server starts. Retention runs once a minute, and the server that filled the database has just run it.
func letRetain(ctx context.Context, data string) error {
	opened, err := store.Open(ctx, store.Options{URL: "sqlite", DataDir: data})
	if err != nil {
		return err
	}
	return errors.Join(opened.State().Delete(ctx, "retention", "messages"), opened.Close())
}

// awaitIndex waits until the search index has all messages.
func (w *world) awaitIndex(ctx context.Context) error {
	for {
		pending, err := w.metric(ctx, "inbox_search_pending")
		if err != nil || pending == 0 {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the search index is not complete: %w", ctx.Err())
		}
	}
}

// metric reads a metric without labels.
func (w *world) metric(ctx context.Context, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.http+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut("\n"+string(text), "\n"+name+" ")
	if !found {
		return 0, fmt.Errorf("the server has no metric %s", name)
	}
	value, _, _ := strings.Cut(after, "\n")
	return strconv.ParseFloat(value, 64)
}

func fillOld(ctx context.Context, data string) error {
	opened, err := store.Open(ctx, store.Options{URL: "sqlite", DataDir: data})
	if err != nil {
		return err
	}
	const page = 1000
	for from := 0; from < oldTurns && err == nil; from += page {
		err = opened.InTx(ctx, func(tx *store.Tx) error {
			for i := from; i < from+page; i++ {
				if _, _, err := tx.InsertTurn(ctx, oldTurn(i), pipeline.Original{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return errors.Join(err, opened.Close())
}

// idAt returns a UUIDv7 (RFC 9562, section 5.7) with the given time. Retention selects messages by the time in their ids.
func idAt(at time.Time) string {
	id := uuid.Must(uuid.NewV7())
	var milliseconds [8]byte
	binary.BigEndian.PutUint64(milliseconds[:], uint64(at.UnixMilli()))
	copy(id[:6], milliseconds[2:])
	return id.String()
}

// oldTurn is a message that was answered two days ago. Every other one is of the same person.
func oldTurn(i int) exchange.TurnRecord {
	at := time.Now().Add(-48*time.Hour + time.Duration(i)*time.Millisecond).UTC().Truncate(time.Millisecond)
	principal, address := oldPrincipal, oldAddress
	if i%2 == 1 {
		principal, address = fmt.Sprintf("mailto:person%d@away.example", i), fmt.Sprintf("@person%d@away.example", i)
	}
	return exchange.TurnRecord{
		ID: idAt(at), Agent: "echo", Principal: principal, ThreadID: fmt.Sprintf("thread-%d", i/20), State: exchange.StateAnswered,
		Attempt: 1, Channel: oldChannel, AcceptedAt: at, UpdatedAt: at,
		Message: normalized.Message{
			ID: fmt.Sprintf("<old-%d@away.example>", i), ReceivedVia: oldChannel, Recipient: "@echo@inbox.test",
			Sender: normalized.Sender{Address: identity.Stated(address), AuthMethod: "none"},
			Parts:  []normalized.Part{normalized.Text(fmt.Sprintf("Question %d: how do I fold a paper crane, and which paper is best for number %x?", i, i*i))},
		},
	}
}
