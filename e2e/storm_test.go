package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

const (
	viaActivityPub = "activitypub"
	viaEmail       = "email"
	viaA2A         = "a2a"
)

// storm is many senders on all three protocols against one server that may go away at any time. A sender repeats a
// message until the server takes it, as real peers do, then waits a moment for the reply before it sends the next.
type storm struct {
	t         *testing.T
	s         *server
	fronts    []*server // that senders write to, w.s first
	ledger    *load.Ledger
	community *load.Community
	domains   []load.MailDomain
	large     bool // a part of the mails is large
	peer      load.A2APeer
	client    *http.Client

	most    int           // messages of each sender; 0 = until the end
	stop    chan struct{} // closed when senders shall finish
	senders sync.WaitGroup

	acknowledged atomic.Int64
	retries      atomic.Int64
	era          atomic.Int64 // how many servers have stood at the addresses before this one

	mu       sync.Mutex
	tasks    map[string]string // A2A message id → task id
	answers  map[string]bool   // A2A message id and answer that were seen
	eras     map[string]int64  // message id → era in which it was acknowledged
	refusals []string          // answers that say the message itself is wrong, or other broken promises
}

const (
	replyPatience = time.Second           // before a sender goes on without the reply
	blockPatience = time.Minute           // for a blocking send, which the server holds for 50 s at most and acknowledges at its end
	retryPause    = 25 * time.Millisecond // after an attempt that failed
	stormPersons  = 24                    // actors that share the fediverse senders
	stormDomains  = 3                     // domains that share the mail senders
)

func newStorm(t *testing.T, database string) *storm { return newStormWith(t, database, "") }

// newStormWith also writes further lines of TOML.
func newStormWith(t *testing.T, database, more string) *storm {
	t.Helper()
	return newStormIn(t, database, "", more)
}

// newStormIn also says where files are (blob_url).
func newStormIn(t *testing.T, database, files, more string) *storm {
	t.Helper()
	return newStormAt(t, database, files, more, func(settings instance.Settings) []*server { return []*server{start(t, settings)} })
}

// newStormAt also starts the servers itself, among which the senders are divided.
func newStormAt(t *testing.T, database, files, more string, begin func(instance.Settings) []*server) *storm {
	t.Helper()
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	w := &storm{
		t: t, ledger: load.NewLedger(), stop: make(chan struct{}), tasks: map[string]string{}, answers: map[string]bool{}, eras: map[string]int64{},
		client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 300}},
	}
	w.community = newCommunity(t, stormPersons, func(arrival load.Arrival) {
		if arrival.Type == "Create" {
			w.ledger.Replied(arrival.InReplyTo, arrival.ID, arrival.At)
		}
	})
	sink, err := load.NewSink("127.0.0.1:0", func(received load.Received) {
		w.ledger.Replied(received.Field("In-Reply-To"), received.Field("Message-ID"), received.At)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.Close)
	for i := range stormDomains {
		domain, err := load.NewMailDomain(names, fmt.Sprintf("domain%d.test", i))
		if err != nil {
			t.Fatal(err)
		}
		w.domains = append(w.domains, domain)
	}
	w.fronts = begin(instance.Settings{
		Database: database, Files: files, Domain: "inbox.test", DNS: names.Address(), Smarthost: sink.URL(), Lease: "3s",
		More: "[log]\nlevel = \"warn\"\n" + more,
	})
	w.s = w.fronts[0]
	token, err := w.s.Token(t.Context(), "storm")
	if err != nil {
		t.Fatal(err)
	}
	w.peer = load.A2APeer{URL: w.s.URL() + "/a2a/echo", Token: token, Client: &http.Client{Timeout: blockPatience, Transport: w.client.Transport}}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// begin starts the senders, spread evenly on the protocols.
func (w *storm) begin(senders int) {
	for i := range senders {
		var attempt func(key string) (id string, try func() error)
		var protocol string
		switch i % 3 {
		case 0:
			protocol, attempt = viaActivityPub, w.mention(i)
		case 1:
			protocol, attempt = viaEmail, w.mail(i)
		case 2:
			protocol, attempt = viaA2A, w.task(i)
		}
		w.senders.Go(func() { w.send(i, protocol, attempt) })
	}
}

// finish lets every sender bring its message to an end.
func (w *storm) finish() {
	close(w.stop)
	w.senders.Wait()
}

func (w *storm) stopping() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

func (w *storm) send(sender int, protocol string, attempt func(string) (string, func() error)) {
	for n := 0; !w.stopping() && (w.most == 0 || n < w.most); n++ {
		id, try := attempt(fmt.Sprintf("%d-%d", sender, n))
		w.ledger.Sent(protocol, id, time.Now())
		if w.persist(id, try) {
			w.ledger.Acknowledged(id)
			w.acknowledged.Add(1)
		}
		select {
		case <-w.ledger.Answered(id):
		case <-time.After(replyPatience):
		case <-w.stop:
		}
	}
}

// persist repeats until the server takes the message or calls it wrong. After the end of the storm it gives up.
func (w *storm) persist(id string, try func() error) bool {
	var giveUp <-chan time.Time
	for {
		era := w.era.Load()
		err := try()
		if err == nil {
			w.mu.Lock()
			w.eras[id] = era
			w.mu.Unlock()
			return true
		}
		if final(err) {
			w.refusedf("%s: %v", id, err)
			return false
		}
		w.retries.Add(1)
		if giveUp == nil && w.stopping() {
			giveUp = time.After(patience)
		}
		select {
		case <-time.After(retryPause):
		case <-giveUp:
			w.refusedf("%s: still not taken %s after the end: %v", id, patience, err)
			return false
		}
	}
}

func (w *storm) refusedf(format string, values ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusals = append(w.refusals, fmt.Sprintf(format, values...))
}

// final reports whether the server understood the message and refuses it; everything else is tried again.
func final(err error) bool {
	if status, ok := errors.AsType[*load.StatusError](err); ok {
		return status.Status < 500 && status.Status != http.StatusTooManyRequests
	}
	if reply, ok := errors.AsType[*textproto.Error](err); ok {
		return reply.Code >= 500
	}
	rpc, ok := errors.AsType[*load.RPCError](err)
	return ok && rpc.Code != load.InternalError
}

// front is the server that a sender writes to. Senders of each protocol write to each server.
func (w *storm) front(sender int) *server {
	if len(w.fronts) == 1 { // a test may have put another one in its place
		return w.s
	}
	return w.fronts[sender/3%len(w.fronts)]
}

func (w *storm) mention(sender int) func(string) (string, func() error) {
	person := w.community.Persons[sender%len(w.community.Persons)]
	actor := w.s.Actor("echo")
	return func(key string) (string, func() error) {
		mention := person.Mention(actor, key, "hello from "+key)
		return mention.NoteID, func() error {
			request, err := person.Delivery(actor+"/inbox", mention.Body, load.Signature{})
			if err != nil {
				return err
			}
			request.Host = request.URL.Host
			request.URL.Host = w.front(sender).Settings.HTTP
			return post202(w.client, request)
		}
	}
}

func post202(client *http.Client, request *http.Request) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusAccepted {
		return &load.StatusError{Status: response.StatusCode, Body: string(body)}
	}
	return nil
}

func (w *storm) mail(sender int) func(string) (string, func() error) {
	domain := w.domains[sender%len(w.domains)]
	from := fmt.Sprintf("sender%d@%s", sender, domain.Name)
	const to = "echo@inbox.test"
	body := "hello"
	if w.large && sender%10 == 0 {
		body = strings.Repeat(strings.Repeat("x", 75)+"\n", 1000) // its original is a file
	}
	var connection *load.MailSender
	return func(key string) (string, func() error) {
		id := key + "@" + domain.Name
		signed, err := domain.Sign(load.Mail{From: from, To: to, MessageID: id, Subject: "Question " + key, Body: body}.Bytes())
		return id, func() error {
			if err != nil {
				return err
			}
			if connection == nil {
				if connection, err = load.DialMail(w.front(sender).Settings.SMTP); err != nil {
					failed := err
					connection, err = nil, nil
					return failed
				}
			}
			if failed := connection.Send(from, to, signed); failed != nil {
				connection.Close()
				connection = nil
				return failed
			}
			return nil
		}
	}
}

func (w *storm) task(sender int) func(string) (string, func() error) {
	immediate := sender%2 == 0
	peer := w.peer
	peer.URL = "http://" + w.front(sender).Settings.HTTP + "/a2a/echo"
	return func(key string) (string, func() error) {
		id := "message-" + key
		body := load.SendBody(id, "hello from "+key, immediate)
		return id, func() error {
			task, err := peer.Send(context.Background(), body)
			if err != nil {
				return err
			}
			w.mu.Lock()
			known := w.tasks[id]
			w.tasks[id] = task.ID
			w.mu.Unlock()
			if known != "" && known != task.ID {
				w.refusedf("%s: two tasks for one message id: %s and %s", id, known, task.ID)
			}
			w.heard(id, task)
			return nil
		}
	}
}

// collect asks for every acknowledged task, as a peer does that lost its connection.
func (w *storm) collect() {
	w.t.Helper()
	for id, taskID := range w.tasks {
		task := w.awaitTask(taskID)
		if task.Status.State != completed {
			w.refusedf("%s: task %s is %s", id, taskID, task.Status.State)
		}
		w.heard(id, task)
	}
}

// heard notes the answers in a task, each of them once: a task shows its answer as often as one asks for it.
func (w *storm) heard(id string, task load.Task) {
	for _, answer := range task.Answers() {
		w.mu.Lock()
		known := w.answers[id+answer]
		w.answers[id+answer] = true
		w.mu.Unlock()
		if !known {
			w.ledger.Replied(id, answer, time.Now())
		}
	}
}

func (w *storm) awaitTask(id string) load.Task {
	w.t.Helper()
	var task load.Task
	eventually(w.t, "task "+id+" ends", func() bool {
		var err error
		if task, err = w.peer.Get(w.t.Context(), id); err != nil {
			w.t.Fatalf("task %s is acknowledged and cannot be read: %v", id, err)
		}
		return task.Status.State == completed || task.Status.State == "TASK_STATE_FAILED"
	})
	return task
}

// drained waits until the server has nothing left to do: no job, so no reply can come any more.
func (w *storm) drained(limit time.Duration) bool {
	w.t.Helper()
	deadline := time.Now().Add(limit)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for time.Now().Before(deadline) {
		if w.s.rows()["jobs"] == 0 {
			return true
		}
		<-ticker.C
	}
	return false
}

// judge compares what was acknowledged with what came back, and prints the counts.
func (w *storm) judge() {
	t := w.t
	t.Helper()
	if !w.drained(4 * time.Minute) { // some two thousand messages, on a machine that does much else
		t.Errorf("the server still has work: %v", w.s.rows())
	}
	w.collect()
	for _, protocol := range []string{viaActivityPub, viaEmail, viaA2A} {
		counts := w.ledger.Count(protocol)
		t.Logf("%-11s %s", protocol, counts)
		if counts.Acknowledged == 0 {
			t.Errorf("%s: nothing was acknowledged", protocol)
		}
	}
	total := w.ledger.Count("")
	t.Logf("%-11s %s, attempts repeated %d", "all", total, w.retries.Load())
	if total.Missing > 0 || total.Doubled > 0 || total.Unasked > 0 {
		t.Errorf("not every acknowledged message has exactly one reply: %s\n%v", total, total.Examples)
	}
	for _, refusal := range w.refusals {
		t.Error(refusal)
	}
}
