package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

// scenario measures one thing against a fresh server.
type scenario struct {
	name  string
	about string // for the report
	needs needs
	run   func(ctx context.Context, w *world, server *instance.Instance) (measurement, error)

	more    string                                                      // lines of the server's configuration
	prepare func(ctx context.Context, w *world, directory string) error // puts the server's data into its directory; nil = it has none
}

// needs says which messages have to be signed beforehand.
type needs struct {
	busyNotes, steadyNotes, strangerNotes, echoNotes, busyMails, echoMails bool
}

func (n needs) or(m needs) needs {
	return needs{n.busyNotes || m.busyNotes, n.steadyNotes || m.steadyNotes, n.strangerNotes || m.strangerNotes, n.echoNotes || m.echoNotes, n.busyMails || m.busyMails, n.echoMails || m.echoMails}
}

// Connections at once, as in the first measurements of this project, and unanswered messages at once.
const (
	noteConnections = 32
	mailConnections = 20
	noteWindow      = 128
	mailWindow      = 64
)

func scenarios() []scenario {
	return slices.Concat([]scenario{
		{name: "ready", about: "start of the process until `/readyz` says 200 (five starts on an existing database)", needs: needs{}, run: measureReady},
		{name: "idle", about: "memory two seconds after the start", needs: needs{}, run: measureIdle},
		{name: "activitypub_accept", about: fmt.Sprintf("signed deliveries (RSA-2048, %d actors) acknowledged with 202, %d connections, the agent is busy", persons, noteConnections), needs: needs{busyNotes: true}, run: measureNotes},
		{name: "activitypub_strangers", about: fmt.Sprintf("the same from actors never seen before, on %d servers: each costs a fetch of its key", strangerServers), needs: needs{strangerNotes: true}, run: measureStrangers},
		{name: "email_accept", about: fmt.Sprintf("DKIM-signed mails of 10 KiB (%d domains) acknowledged with 250, %d connections, the agent is busy", domains, mailConnections), needs: needs{busyMails: true}, run: measureMails},
	}, a2aScenarios(), []scenario{
		{name: "activitypub_reply", about: fmt.Sprintf("delivery → signed echo reply delivered, as fast as it goes, at most %d unanswered", noteWindow), needs: needs{echoNotes: true}, run: measureNoteReplies},
		{name: "activitypub_reply_200", about: "delivery → signed echo reply delivered, 200 messages a second whatever the server does", needs: needs{echoNotes: true}, run: measureNoteRepliesOpenLoop},
		{name: "activitypub_fanout", about: fmt.Sprintf("one public reply to %d followers on %d servers, one in twenty slow (%s) and one in twenty dead; time from the question to each living server", fanFollowers, fanHosts, fanSlowness), needs: needs{echoNotes: true}, run: measureFanOut},
		{name: "email_reply", about: fmt.Sprintf("DKIM-signed mail of 1 KiB → signed echo reply at the smarthost, at most %d unanswered", mailWindow), needs: needs{echoMails: true}, run: measureMailReplies},
		searchScenario(),
	}, besideScenarios())
}

func (w *world) chosen() []scenario {
	var chosen []scenario
	for _, s := range scenarios() {
		if w.only.MatchString(s.name) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

const startsMeasured = 5

func measureReady(ctx context.Context, _ *world, server *instance.Instance) (measurement, error) {
	var m measurement
	for range startsMeasured {
		if err := server.Kill(); err != nil {
			return m, err
		}
		started := time.Now()
		if err := server.Start(ctx); err != nil {
			return m, err
		}
		m.latencies = append(m.latencies, time.Since(started))
	}
	return m, nil
}

func measureIdle(ctx context.Context, _ *world, _ *instance.Instance) (measurement, error) {
	select {
	case <-time.After(2 * time.Second):
		return measurement{}, nil
	case <-ctx.Done():
		return measurement{}, ctx.Err()
	}
}

// saturate calls send from many workers until the time is over or send says that nothing is left.
func saturate(ctx context.Context, duration time.Duration, workers int, send func(worker int) error) (measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	results := make([]measurement, workers)
	var group sync.WaitGroup
	started := time.Now()

	for worker := range workers {
		group.Go(func() { results[worker] = repeat(ctx, func() error { return send(worker) }) })
	}

	group.Wait()
	total := merge(results)
	total.elapsed = time.Since(started)
	return total, total.problem()
}

var errUsedUp = errors.New("every prepared message was sent")

func repeat(ctx context.Context, send func() error) measurement {
	var m measurement
	for ctx.Err() == nil {
		started := time.Now()
		err := send()
		if errors.Is(err, errUsedUp) {
			break
		}
		if err != nil {
			m.errors++
			m.err = err
			continue
		}
		m.latencies = append(m.latencies, time.Since(started))
	}

	return m
}

// post delivers a note and demands 202.
func (w *world) post(target *url.URL, note signedNote) error {
	response, err := w.client.Do(note.request(target))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()

	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusAccepted {
		return &load.StatusError{Status: response.StatusCode, Body: string(body)}
	}
	return nil
}

func (w *world) inbox(agent string) (*url.URL, error) { return url.Parse(w.actor(agent) + "/inbox") }

// meet sends the first note of every person, so that their keys are known, and returns the others.
func (w *world) meet(target *url.URL, notes []signedNote) ([]signedNote, error) {
	for _, note := range notes[:persons] {
		if err := w.post(target, note); err != nil {
			return nil, fmt.Errorf("first contact: %w", err)
		}
	}
	return notes[persons:], nil
}

func measureNotes(ctx context.Context, w *world, _ *instance.Instance) (measurement, error) {
	target, err := w.inbox("busy")
	if err != nil {
		return measurement{}, err
	}

	notes, err := w.meet(target, w.pools.busyNotes)
	if err != nil {
		return measurement{}, err
	}

	var next atomic.Int64
	return saturate(ctx, w.duration, noteConnections, func(int) error {
		i := int(next.Add(1)) - 1
		if i >= len(notes) {
			return errUsedUp
		}
		return w.post(target, notes[i])
	})
}

// measureStrangers has no first contact: every note is one.
func measureStrangers(ctx context.Context, w *world, _ *instance.Instance) (measurement, error) {
	target, err := w.inbox("busy")
	if err != nil {
		return measurement{}, err
	}

	var next atomic.Int64
	return saturate(ctx, w.duration, noteConnections, func(int) error {
		i := int(next.Add(1)) - 1
		if i >= len(w.pools.strangerNotes) {
			return errUsedUp
		}
		return w.post(target, w.pools.strangerNotes[i])
	})
}

func measureMails(ctx context.Context, w *world, _ *instance.Instance) (measurement, error) {
	connections := make([]*load.MailSender, mailConnections)
	defer closeAll(connections)
	var next atomic.Int64
	return saturate(ctx, w.duration, mailConnections, func(worker int) error {
		i := int(next.Add(1)) - 1
		if i >= len(w.pools.busyMails) {
			return errUsedUp
		}
		return bring(w.smtp, &connections[worker], w.pools.busyMails[i])
	})
}

func closeAll(connections []*load.MailSender) {
	for _, connection := range connections {
		if connection != nil {
			connection.Close()
		}
	}
}

// bring sends a mail on the worker's connection to a mail server and opens that when it has to.
func bring(address string, connection **load.MailSender, mail signedMail) error {
	if *connection == nil {
		opened, err := load.DialMail(address)
		if err != nil {
			return err
		}
		*connection = opened
	}

	err := (*connection).Send(mail.from, mail.to, mail.raw)
	if err != nil {
		(*connection).Close()
		*connection = nil
	}
	return err
}
