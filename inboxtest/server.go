// Package inboxtest starts whole servers, for tests of what only a whole server shows, and speaks HTTP with them. It is for
// tests only.
package inboxtest

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox"
	"inbox/adapters/activitypub"
	"inbox/adapters/activitypub/signature"
	"inbox/adapters/email"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/await"
)

// Client is the HTTP client of tests: it waits for no answer for ever, and for no stream.
var Client = &http.Client{Timeout: 2 * await.Patience}

// Server is a running server. It stops when its test ends.
type Server struct {
	testing.TB
	*inbox.Server

	URL   string              // of its HTTP listener
	Store func() *store.Store // its database, opened beside it as the commands do
}

// Start runs a server on loopback with a data directory of its own. Settings are NAME=value, as in the environment.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return New(tb, "", settings...).Serve()
}

// New makes a server that does not run yet, so that agents can be registered. The settings win over those of the file, which
// may be empty.
func New(tb testing.TB, file string, settings ...string) *Server {
	tb.Helper()
	config, err := inbox.LoadConfig(file, append([]string{
		"INBOX_DATA_DIR=" + tb.TempDir(), "INBOX_HTTP_LISTEN=127.0.0.1:0", "INBOX_SMTP_LISTEN=off", "INBOX_LOG_LEVEL=error",
		"INBOX_PUBLIC_URL=http://localhost:8080",
	}, settings...))
	if err != nil {
		tb.Fatal(err)
	}

	config.ShutdownGrace = 5 * time.Second // what is under way on a busy machine ends by itself
	fillDatabase(tb, config)
	server, err := inbox.New(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}

	return &Server{TB: tb, Server: server, Store: sync.OnceValue(func() *store.Store {
		opened, err := store.Open(tb.Context(), store.Options{URL: string(config.DatabaseURL), DataDir: config.DataDir})
		if err != nil {
			tb.Fatal(err)
		}

		tb.Cleanup(func() {
			if err := opened.Close(); err != nil {
				tb.Error(err)
			}
		})
		return opened
	})}
}

// fillDatabase copies a database of the newest schema to where a new server would migrate an empty one, which takes more processor time
// than most tests do.
func fillDatabase(tb testing.TB, config *inbox.Config) {
	tb.Helper()
	if config.DatabaseURL != "sqlite" {
		return
	}
	if there, err := os.ReadDir(config.DataDir); err != nil || len(there) > 0 { // a test made what is there, or wants it to be made
		return
	}
	storetest.Fill(tb, config.DataDir, func(directory string) (io.Closer, error) {
		return store.Open(tb.Context(), store.Options{DataDir: directory})
	})
}

// Serve runs the server until the test ends.
func (s *Server) Serve() *Server {
	s.Helper()
	s.storeKeys()

	if err := s.Listen(); err != nil {
		s.Fatal(err)
	}

	s.URL = "http://" + s.HTTPAddr().String()

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.Cleanup(func() {
		stop()
		if err := await.Receive(s, ended, "the end of the server"); err != nil {
			s.Error(err)
		}
	})

	return s
}

// storeKeys stores the keys of the actors before the server makes them.
func (s *Server) storeKeys() {
	s.Helper()
	var names []string
	for _, agent := range s.Agents() {
		names = append(names, agent.Name)
	}
	StoreKeys(s, s.Store(), names...)
}

// rsaKey is the RSA key of every actor and every mail domain of the servers in this process.
var rsaKey = sync.OnceValues(func() (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	return signature.EncodePrivate(key)
})

// StoreKeys stores RSA keys for agents, for the server's own actor and for mail, as versions did that sealed none. To make them
// costs a server more processor time than most tests do.
func StoreKeys(tb testing.TB, opened *store.Store, agents ...string) {
	tb.Helper()
	key, err := rsaKey()
	if err != nil {
		tb.Fatal(err)
	}

	actor, err := json.Marshal(map[string]any{"private_key_pem": key, "created_at": time.Now().UTC()})
	if err != nil {
		tb.Fatal(err)
	}

	put := func(namespace, name string, value []byte) {
		if _, _, err := opened.State().PutIfAbsent(tb.Context(), namespace, name, value, time.Time{}); err != nil {
			tb.Fatal(err)
		}
	}

	put(email.KeyNamespace, "rsa", []byte(key))
	put(activitypub.KeyNamespace, "rsa:", actor)

	for _, agent := range agents {
		put(activitypub.KeyNamespace, "rsa:"+agent, actor)
	}
}

// Token mints a token that opens all agents.
func (s *Server) Token(name string) string {
	s.Helper()
	token, _, err := s.Operator().Tokens.Create(s.Context(), name, "")
	if err != nil {
		s.Fatal(err)
	}
	return token
}

// Open sends a request and returns its response, whatever the status. The header holds names and values by turns.
func (s *Server) Open(method, path, token, body string, header ...string) *http.Response {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}

	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}

	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}

	response, err := Client.Do(request)
	if err != nil {
		s.Fatal(err)
	}

	return response
}

// Read sends a request and returns status, header and the whole body of the response.
func (s *Server) Read(method, path, token, body string, header ...string) (int, http.Header, string) {
	s.Helper()
	response := s.Open(method, path, token, body, header...)
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		s.Fatal(err)
	}
	return response.StatusCode, response.Header, string(content)
}

// Waits returns once a turn waits for a person or a program.
func (s *Server) Waits(turnID string) {
	s.Helper()
	s.turn(turnID, "waits", func(turn exchange.TurnRecord) bool { return turn.State == exchange.StateWaiting })
}

// Settled returns a turn once it has ended or waits.
func (s *Server) Settled(turnID string) exchange.TurnRecord {
	s.Helper()
	return s.turn(turnID, "has ended or waits", func(turn exchange.TurnRecord) bool { return exchange.Settled(turn.State) })
}

func (s *Server) turn(turnID, what string, is func(exchange.TurnRecord) bool) (turn exchange.TurnRecord) {
	s.Helper()
	await.Until(s, "the turn "+turnID+" "+what, func() bool {
		var err error
		turn, err = s.Store().Turn(s.Context(), turnID)
		return err == nil && is(turn)
	})
	return turn
}

// Event is one server-sent event.
type Event struct{ ID, Name, Data string }

// NextEvent reads one event; ok = false at the end of the stream.
func NextEvent(reader *bufio.Reader) (event Event, ok bool) {
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return event, false
		}

		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "id":
			event.ID = value
		case "event":
			event.Name = value
		case "data":
			event.Data = value
		case "":
			if event.Data != "" {
				return event, true
			}
		}
	}
}

// Events reads a stream to its end.
func Events(response *http.Response) (events []Event) {
	defer func() { _ = response.Body.Close() }()
	reader := bufio.NewReader(response.Body)
	for {
		event, ok := NextEvent(reader)
		if !ok {
			return events
		}
		events = append(events, event)
	}
}
