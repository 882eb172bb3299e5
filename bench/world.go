package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

const (
	persons = 50 // actors with a key each, so that the server's cache of keys works as in life
	// strangerServers is how many servers the actors never seen before come from: one alone would measure the limit of
	// requests to one host.
	strangerServers = 8

	domains = 10 // mail domains with a key each
)

// world is everything around the server. Its addresses stay the same for the whole run, because they are part of what
// is signed.
type world struct {
	options
	binary, directory string
	http, smtp        string

	names     *load.Names
	well      string // IP address of names on port 53; empty = this process may not open it
	community *load.Community
	strangers []*load.Community
	sink      *load.Sink
	domains   []load.MailDomain
	busy      *httptest.Server // an agent that never answers
	client    *http.Client

	oldData string // directory with the data of prepareOld; empty = not made yet

	ledger atomic.Pointer[load.Ledger] // of the running scenario
	pools  pools
}

func newWorld(binary, directory string, chosen options) (*world, error) {
	w := &world{options: chosen, binary: binary, directory: directory}
	w.ledger.Store(load.NewLedger())
	var err error
	if w.http, err = instance.FreeAddress(); err != nil {
		return nil, err
	}
	if w.smtp, err = instance.FreeAddress(); err != nil {
		return nil, err
	}
	if w.names, err = load.NewNames(); err != nil {
		return nil, err
	}

	if os.Geteuid() == 0 && w.base == "" { // for Postfix, which is not compared
		if w.well, err = w.names.Well(); err != nil {
			return nil, err
		}
	}

	if w.community, err = load.NewCommunity("127.0.0.1:0", persons, w.noteArrived); err != nil {
		return nil, err
	}

	for range strangerServers {
		community, err := load.NewCommunity("127.0.0.1:0", 1, w.noteArrived)
		if err != nil {
			return nil, err
		}
		w.strangers = append(w.strangers, community)
	}

	if w.sink, err = load.NewSink("127.0.0.1:0", w.mailArrived); err != nil {
		return nil, err
	}

	for i := range domains {
		domain, err := load.NewMailDomain(w.names, fmt.Sprintf("domain%d.example", i))
		if err != nil {
			return nil, err
		}
		w.domains = append(w.domains, domain)
	}

	w.busy = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		<-request.Context().Done()
	}))

	w.client = &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}

	return w, nil
}

func (w *world) noteArrived(arrival load.Arrival) {
	if arrival.InReplyTo != "" {
		w.ledger.Load().Replied(arrival.InReplyTo, arrival.ID, arrival.At)
	}
}

func (w *world) mailArrived(received load.Received) {
	w.ledger.Load().Replied(received.Field("In-Reply-To"), received.Field("Message-ID"), received.At)
}

func (w *world) close() {
	w.busy.CloseClientConnections()
	w.busy.Close()
	w.community.Close()
	for _, community := range w.strangers {
		community.Close()
	}
	w.sink.Close()
	w.names.Close()
}

func (w *world) engines() []string {
	if w.postgres == "" {
		return []string{"sqlite"}
	}
	return []string{"sqlite", "postgres"}
}

// runScenario measures one scenario on a server of its own with an empty database.
func (w *world) runScenario(ctx context.Context, s scenario, engine string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	directory, err := os.MkdirTemp(w.directory, "server-")
	if err != nil {
		return Result{}, err
	}

	settings := w.settings()
	settings.More += s.more
	if s.prepare != nil {
		if err := s.prepare(ctx, w, directory); err != nil {
			return Result{}, err
		}
	}
	if engine == "postgres" {
		url, remove, err := instance.NewDatabase(ctx, w.postgres)
		if err != nil {
			return Result{}, err
		}
		defer func() { _ = remove() }()
		settings.Database = url
	}

	server, err := instance.New(w.binary, directory, settings)
	if err != nil {
		return Result{}, err
	}

	if w.apart {
		server.Processor = serverProcessor
	}

	result, err := w.against(ctx, s, server)
	result.Scenario, result.Engine = s.name, engine
	return result, err
}

func (w *world) against(ctx context.Context, s scenario, server *instance.Instance) (Result, error) {
	if err := server.Start(ctx); err != nil {
		return Result{}, err
	}
	defer func() { _ = server.Kill() }()
	w.ledger.Store(load.NewLedger())

	if err := w.awaitKeys(ctx); err != nil {
		return Result{}, err
	}

	before, err := server.ProcessorTime()
	if err != nil {
		return Result{}, err
	}

	started, generatorBefore := time.Now(), processorTime()
	m, err := s.run(ctx, w, server)
	if err != nil {
		return Result{}, fmt.Errorf("%w\n%s", err, tail(server.Log(), 4096))
	}

	memory, err := server.Memory()
	if err != nil {
		return Result{}, err
	}

	used, err := server.ProcessorTime()
	if err != nil {
		return Result{}, err
	}

	elapsed := time.Since(started)
	fmt.Fprintf(os.Stderr, "  processor time: server %.0f %%, generator %.0f %%\n",
		percentOf(max(used-before, 0), elapsed), percentOf(processorTime()-generatorBefore, elapsed))
	w.client.CloseIdleConnections()
	result := m.result(memory)
	if messages := result.PerSecond * m.elapsed.Seconds(); messages > 0 {
		result.Processor = round(float64((used - before).Microseconds()) / messages)
	}
	return result, nil
}

// awaitKeys asks for the actors: a new server makes their RSA keys in the background, once in its life.
func (w *world) awaitKeys(ctx context.Context) error {
	for _, actor := range []string{w.actor("echo"), w.actor("busy"), "http://" + w.http + "/actor"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, actor, nil)
		if err != nil {
			return err
		}

		request.Header.Set("Accept", "application/activity+json")
		response, err := w.client.Do(request)
		if err != nil {
			return fmt.Errorf("ask for actor: %w", err)
		}

		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("actor %s answered %d", actor, response.StatusCode)
		}
	}
	return nil
}

// processorTime is what this process has used of processors.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func percentOf(part, whole time.Duration) float64 { return 100 * part.Seconds() / whole.Seconds() }

func tail(text string, size int) string {
	if len(text) <= size {
		return text
	}
	return "…" + text[len(text)-size:]
}

// The busy agent takes every message and answers none: with it the cost of accepting is measured alone, and the
// messages wait in the queue as they do behind any slow agent.
func (w *world) settings() instance.Settings {
	return instance.Settings{
		Domain: "inbox.test", HTTP: w.http, SMTP: w.smtp, DNS: w.names.Address(), Smarthost: w.sink.URL(),
		Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n\n" +
			"[[agents]]\nname = \"busy\"\nkind = \"webhook\"\ntimeout = \"10m\"\n" +
			fmt.Sprintf("[agents.webhook]\nurl = %q\nsecret = \"a secret for the benchmark only\"\n", w.busy.URL),
		More: "[log]\nlevel = \"warn\"\n",
	}
}

func (w *world) actor(agent string) string { return "http://" + w.http + "/agents/" + agent }
