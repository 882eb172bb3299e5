package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"inbox/e2e/load"
)

// Upper bounds of what a server may take in a second; a pool that is used up ends its scenario early.
const (
	maxDeliveries     = 8000
	maxStrangers      = 3000
	maxMails          = 4000
	maxNoteReplies    = 1500
	maxMailReplies    = 1200
	openLoopPerSecond = 200
)

// signedNote is a delivery that was signed beforehand. Its date is good for an hour.
type signedNote struct {
	noteID string
	header http.Header
	body   []byte
}

func (s signedNote) request(target *url.URL) *http.Request {
	return &http.Request{
		Method: http.MethodPost, URL: target, Host: target.Host, Header: s.header, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Body: io.NopCloser(bytes.NewReader(s.body)), ContentLength: int64(len(s.body)),
	}
}

// signedMail is a mail with its signature.
type signedMail struct {
	messageID, from, to string
	raw                 []byte
}

// pools are the messages that were signed before the measurement, so that the generator is cheaper than the server.
// Every engine gets the same ones, in an empty database.
type pools struct {
	busyNotes, echoNotes []signedNote
	steadyNotes          []signedNote
	strangerNotes        []signedNote
	busyMails, echoMails []signedMail
}

// prepare signs what the scenarios need, on all processors.
func (w *world) prepare(scenarios []scenario) error {
	var needs needs
	for _, s := range scenarios {
		needs = needs.or(s.needs)
	}

	seconds := int(w.duration / time.Second)
	started := time.Now()
	fmt.Fprintln(os.Stderr, "signing messages …")
	var err error
	if needs.busyNotes {
		w.pools.busyNotes, err = each(seconds*maxDeliveries, w.signNote("busy"))
	}
	if needs.steadyNotes && err == nil {
		w.pools.steadyNotes, err = each(persons+seconds*besideRate, w.signNote("busy"))
	}
	if needs.strangerNotes && err == nil {
		w.pools.strangerNotes, err = each(seconds*maxStrangers, w.signStrangerNote)
	}
	if needs.echoNotes && err == nil {
		w.pools.echoNotes, err = each(persons+seconds*maxNoteReplies, w.signNote("echo"))
	}
	if needs.busyMails && err == nil {
		w.pools.busyMails, err = each(seconds*maxMails, w.signMail("busy", 10<<10))
	}
	if needs.echoMails && err == nil {
		w.pools.echoMails, err = each(domains+seconds*maxMailReplies, w.signMail("echo", 1<<10))
	}

	fmt.Fprintf(os.Stderr, "signed %d messages in %.1f s\n", len(w.pools.busyNotes)+len(w.pools.steadyNotes)+len(w.pools.strangerNotes)+len(w.pools.echoNotes)+
		len(w.pools.busyMails)+len(w.pools.echoMails), time.Since(started).Seconds())
	return err
}

// each makes n values at the same time on all processors.
func each[T any](n int, one func(i int) (T, error)) ([]T, error) {
	values := make([]T, n)
	var group errgroup.Group
	workers := runtime.NumCPU()
	for worker := range workers {
		group.Go(func() error {
			for i := worker; i < n; i += workers {
				var err error
				if values[i], err = one(i); err != nil {
					return err
				}
			}
			return nil
		})
	}

	return values, group.Wait()
}

func (w *world) signNote(agent string) func(int) (signedNote, error) {
	return func(i int) (signedNote, error) { return w.signNoteOf(w.community.Persons[i%persons], agent, i) }
}

// signStrangerNote signs a note of someone who writes once, from one of several servers.
func (w *world) signStrangerNote(i int) (signedNote, error) {
	return w.signNoteOf(w.strangers[i%len(w.strangers)].Stranger(i), "busy", i)
}

func (w *world) signNoteOf(person load.Person, agent string, i int) (signedNote, error) {
	actor := w.actor(agent)
	mention := person.Mention(actor, fmt.Sprintf("%s-%d", agent, i), "a question of some ordinary length, number "+fmt.Sprint(i))
	request, err := person.Delivery(actor+"/inbox", mention.Body, load.Signature{})
	if err != nil {
		return signedNote{}, err
	}
	return signedNote{noteID: mention.NoteID, header: request.Header, body: mention.Body}, nil
}

func (w *world) signMail(agent string, size int) func(int) (signedMail, error) {
	return func(i int) (signedMail, error) {
		domain := w.domains[i%domains]
		from, to := fmt.Sprintf("person%d@%s", i%persons, domain.Name), agent+"@inbox.test"
		id := fmt.Sprintf("%s-%d@%s", agent, i, domain.Name)
		raw, err := domain.Sign(load.Mail{
			From: from, To: to, MessageID: id, Subject: fmt.Sprintf("Question %d", i), Body: text(size),
		}.Bytes())
		return signedMail{messageID: id, from: from, to: to, raw: raw}, err
	}
}

const sentence = "This is one line of an ordinary mail with an ordinary length.\n"

func text(size int) string { return strings.Repeat(sentence, size/len(sentence)+1) }
