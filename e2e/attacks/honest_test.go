package attacks

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/smtp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/load"
)

// The honest peers: what each channel brings in a second, and how many servers it comes from. No sender comes near a limit.
const (
	tasksPerSecond    = 6
	mailsPerSecond    = 4
	mentionsPerSecond = 2
	mailDomains       = 8
	communities       = 4
	perSender         = 18 // messages of one honest sender in a row
	a2aPeers          = 20 // so that each of them writes so much in a minute at most
)

// channels are those of the honest peers.
var channels = []string{"a2a", "email", "fediverse"}

// replies knows when the answer to a message arrived at its sender.
type replies struct {
	mu      sync.Mutex
	waiting map[string]chan time.Time
}

func newReplies() *replies { return &replies{waiting: map[string]chan time.Time{}} }

// to returns what holds the time of the answer to a message, once it is there. Ask before the message is sent.
func (r *replies) to(id string) <-chan time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[id] == nil {
		r.waiting[id] = make(chan time.Time, 1)
	}
	return r.waiting[id]
}

func (r *replies) arrived(id string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if waiting := r.waiting[id]; waiting != nil {
		select {
		case waiting <- at:
		default: // one is enough
		}
	}
}

// community is a server of the fediverse whose persons are those that know ever named.
type community struct {
	*neighbour
	w *world
}

// keys are made once for all tests: that takes longer than a test.
var keys, otherKeys = sync.OnceValues(load.NewKey), sync.OnceValues(load.NewKey)

// otherKey is one that no one published.
func otherKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	return must(otherKeys())(t)
}

// fediverse starts a community. Everything but what special answers is as honest servers have it; special may be nil.
func (w *world) fediverse(host string, special func(http.ResponseWriter, *http.Request) (done bool)) *community {
	c := &community{w: w}
	c.neighbour = w.neighbour(host, http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if special == nil || !special(writer, request) {
			c.serve(writer, request)
		}
	}))
	return c
}

// person is someone of the community; the name is up to who asks.
func (c *community) person(name string) load.Person {
	return load.Person{Name: name, ID: "https://" + c.host + "/users/" + name, Key: must(keys())(c.w.t)}
}

func (c *community) serve(writer http.ResponseWriter, request *http.Request) {
	name, isUser := strings.CutPrefix(request.URL.Path, "/users/")
	switch {
	case request.Method == http.MethodPost:
		body, _ := io.ReadAll(io.LimitReader(request.Body, 1<<20))
		var activity struct{ Object struct{ InReplyTo string } }
		if json.Unmarshal(body, &activity) == nil {
			c.w.replies.arrived(activity.Object.InReplyTo, time.Now())
		}
		writer.WriteHeader(http.StatusAccepted)
	case request.URL.Path == "/.well-known/webfinger":
		name, _, _ = strings.Cut(strings.TrimPrefix(request.URL.Query().Get("resource"), "acct:"), "@")
		c.write(writer, "application/jrd+json", map[string]any{
			"subject": "acct:" + name + "@" + c.host,
			"links":   []map[string]string{{"rel": "self", "type": "application/activity+json", "href": c.person(name).ID}},
		})
	case isUser && !strings.HasPrefix(name, "nobody"):
		c.write(writer, "application/activity+json", c.person(name).Document())
	default:
		http.NotFound(writer, request)
	}
}

func (c *community) write(writer http.ResponseWriter, mediaType string, value any) {
	writer.Header().Set("Content-Type", mediaType)
	_ = json.NewEncoder(writer).Encode(value)
}

// mention sends a signed note to an agent from an address and returns the status, and when its answer arrives.
func (c *community) mention(ctx context.Context, source string, person load.Person, agent, key, text string, how load.Signature) (int, <-chan time.Time, error) {
	actor := c.w.url("/agents/" + agent)
	mention := person.Mention(actor, key, text)
	answer := c.w.replies.to(mention.NoteID)
	request, err := person.Delivery(actor+"/inbox", mention.Body, how)
	if err != nil {
		return 0, nil, err
	}
	response, err := c.w.client(source).Do(request.WithContext(ctx))
	if err != nil {
		return 0, nil, err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, answer, response.Body.Close()
}

// sample is what one honest message saw.
type sample struct {
	channel  string
	other    bool // one of the newcomers, whose messages cost more or less than those of the honest peers
	begun    time.Time
	answered time.Duration // until the answer was there; 0 = it never was
	refused  error
}

// honest peers write all the time.
type honest struct {
	w           *world
	tokens      []string
	domains     []load.MailDomain
	communities []*community
	stop        func()
	under       sync.WaitGroup

	mu      sync.Mutex
	samples []sample
}

// newHonest makes honest peers that write until the test ends.
func newHonest(w *world) *honest {
	h := &honest{w: w}
	for i := range a2aPeers {
		h.tokens = append(h.tokens, w.token(fmt.Sprintf("honest-%d", i)))
	}
	for i := range mailDomains {
		made := must(load.NewMailDomain(w.names, fmt.Sprintf("friend%d.example", i)))(w.t)
		w.names.SetTXT(made.Name, "v=spf1 ip4:"+mailSource(i)+" -all")
		h.domains = append(h.domains, made)
	}
	for i := range communities {
		h.communities = append(h.communities, w.fediverse(fmt.Sprintf("social%d.example", i), nil))
	}
	return h
}

// mailSource is the address of an honest mail server: each is in a network of its own.
func mailSource(i int) string { return fmt.Sprintf("198.51.%d.25", i) }

// write sends on all channels until the stop, whatever became of earlier messages, and waits for none of them.
func (h *honest) write() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	for i, one := range []struct {
		rate int
		send sender
	}{{tasksPerSecond, h.task}, {mailsPerSecond, h.mail}, {mentionsPerSecond, h.mention}} {
		h.under.Go(func() {
			ticker := time.NewTicker(time.Second / time.Duration(one.rate))
			defer ticker.Stop()
			for n := 0; ; n++ {
				h.under.Go(func() { h.one(channels[i], n, one.send) })
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

// sender sends the n-th message of a channel and gives when it began to, without what only greets, and when the answer comes.
type sender func(ctx context.Context, n int) (begun time.Time, answer <-chan time.Time, err error)

// one sends one message and waits for its answer.
func (h *honest) one(channel string, n int, send sender) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begun, answer, err := send(ctx, n)
	found := sample{channel: channel, other: !slices.Contains(channels, channel), begun: begun, refused: err}
	if err == nil {
		select {
		case at := <-answer:
			found.answered = at.Sub(found.begun)
		case <-ctx.Done():
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples = append(h.samples, found)
}

// finish ends the writing and waits until the last message was answered or given up.
func (h *honest) finish() {
	h.stop()
	h.under.Wait()
}

// agent is whom an honest message is for: one that is attacked, and one that is not. One of them alone would come near the limit of
// messages to an agent.
func (h *honest) agent(n int) string { return []string{"echo", "helper"}[n%2] }

func (h *honest) task(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
	begun := time.Now()
	peer := load.A2APeer{URL: h.w.url("/a2a/" + h.agent(n)), Token: h.tokens[n/perSender%len(h.tokens)], Client: h.w.client("203.0.113.1")}
	text := fmt.Sprintf("honest task %d", n)
	task, err := peer.Send(ctx, load.SendBody(fmt.Sprintf("honest-%d", n), text, false))
	if err != nil {
		return begun, nil, err
	}
	answer := make(chan time.Time, 1)
	if task.Status.State == "TASK_STATE_COMPLETED" {
		answer <- time.Now()
	}
	return begun, answer, nil
}

func (h *honest) mail(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
	begun := time.Now()
	number := n % len(h.domains)
	from := h.domains[number]
	mail := load.Mail{
		From: fmt.Sprintf("friend%d@%s", n/perSender, from.Name), To: h.agent(n) + "@" + domain, MessageID: fmt.Sprintf("honest-%d@%s", n, from.Name),
		Subject: fmt.Sprintf("Question %d", n), Body: fmt.Sprintf("honest mail %d", n),
	}
	answer := h.w.replies.to(mail.MessageID)
	signed, err := from.Sign(mail.Bytes())
	if err != nil {
		return begun, nil, err
	}
	session, err := h.w.post(ctx, mailSource(number))
	if err != nil {
		return begun, nil, err
	}
	defer session.end()
	begun = time.Now() // the greeting waits for those who speak too early
	return begun, answer, session.send(mail.From, mail.To, signed)
}

func (h *honest) mention(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
	begun := time.Now()
	from := h.communities[n%len(h.communities)]
	person := from.person(fmt.Sprintf("friend%d", n/perSender))
	status, answer, err := from.mention(ctx, fmt.Sprintf("192.0.2.%d", n%len(h.communities)), person, h.agent(n), fmt.Sprintf("honest-%d", n), fmt.Sprintf("honest mention %d", n), load.Signature{})
	if err == nil && status != http.StatusAccepted {
		err = &load.StatusError{Status: status}
	}
	return begun, answer, err
}

// session is one connection that brings mail.
type session struct{ client *smtp.Client }

// post connects for mail from an address.
func (w *world) post(ctx context.Context, source string) (*session, error) {
	connection, err := w.dialer(source).DialContext(ctx, "tcp", mailAddress)
	if err != nil {
		return nil, err
	}
	_ = connection.SetDeadline(time.Now().Add(2 * patience))
	client, err := smtp.NewClient(connection, domain)
	if err == nil {
		err = client.Hello("mail.example")
	}
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return &session{client}, nil
}

func (s *session) end() { _ = s.client.Close() }

// send brings a mail. A refusal is a *textproto.Error. Dots at the beginning of lines are doubled at once (RFC 5321, section 4.5.2):
// the writer of net/textproto looks at each byte, and here the sender's processor time is taken from the server that is measured.
func (s *session) send(from, to string, mail []byte) error {
	if err := s.client.Mail(from); err != nil {
		return err
	}
	if err := s.client.Rcpt(to); err != nil {
		return errors.Join(err, s.client.Reset())
	}

	text := s.client.Text
	if err := text.PrintfLine("DATA"); err != nil {
		return err
	}
	if _, _, err := text.ReadResponse(354); err != nil {
		return errors.Join(err, s.client.Reset())
	}

	if !bytes.HasSuffix(mail, []byte("\r\n")) {
		mail = append(mail, "\r\n"...)
	}
	if _, err := text.W.Write(bytes.ReplaceAll(mail, []byte("\r\n."), []byte("\r\n.."))); err != nil {
		return err
	}
	if err := text.PrintfLine("."); err != nil {
		return err
	}
	_, _, err := text.ReadResponse(250)
	return err
}

// period is a time in which an attack ran, or none did.
type period struct{ from, to time.Time }

// during returns the honest messages that were begun in some periods.
func (h *honest) during(periods ...period) seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found seen
	for _, one := range h.samples {
		if !slices.ContainsFunc(periods, func(p period) bool { return !one.begun.Before(p.from) && one.begun.Before(p.to) }) {
			continue
		}
		found.sent++
		switch {
		case one.refused != nil:
			found.refused = append(found.refused, fmt.Errorf("%s: %w", one.channel, one.refused))
		case one.answered == 0:
			found.unanswered = append(found.unanswered, one.channel)
		case !one.other:
			found.took = append(found.took, one.answered)
		}
	}
	slices.Sort(found.took)
	return found
}

// seen is what honest peers saw in a time.
type seen struct {
	sent       int
	refused    []error
	unanswered []string        // channels
	took       []time.Duration // from the message to its answer, sorted
}

// and returns what was seen in both times.
func (s seen) and(other seen) seen {
	both := seen{
		sent: s.sent + other.sent, refused: slices.Concat(s.refused, other.refused), unanswered: slices.Concat(s.unanswered, other.unanswered),
		took: slices.Concat(s.took, other.took),
	}
	slices.Sort(both.took)
	return both
}

// quantile is the nearest rank.
func (s seen) quantile(q float64) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	return s.took[min(len(s.took)-1, int(q*float64(len(s.took))))]
}

// judge demands that nothing was refused or left unanswered.
func (s seen) judge(t *testing.T, when string) {
	t.Helper()
	for i, refusal := range s.refused {
		if i == 5 {
			t.Errorf("%s: and %d more refusals", when, len(s.refused)-i)
			break
		}
		t.Errorf("%s: an honest message was refused: %v", when, refusal)
	}
	if len(s.unanswered) > 0 {
		t.Errorf("%s: %d of %d honest messages were not answered within %s: %v", when, len(s.unanswered), s.sent, patience, s.unanswered)
	}
}
