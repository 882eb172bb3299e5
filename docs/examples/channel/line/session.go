package line

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
)

const (
	maxLine  = 64 << 10 // bytes
	maxHello = 10 * time.Second
	maxIdle  = 30 * time.Minute
	maxWrite = 10 * time.Second
	maxGot   = 10 * time.Second // for the GOT of a connection that takes our lines
)

// session is one connection.
type session struct {
	channel    *Channel
	connection net.Conn
	writing    sync.Mutex
	over       chan struct{} // closed when the connection is

	mu     sync.Mutex
	secret string                   // the token that HELLO showed
	id     string                   // of the token; empty until HELLO
	got    map[string]chan struct{} // by the id of an answer that waits for its GOT
}

func newSession(channel *Channel, connection net.Conn) *session {
	return &session{channel: channel, connection: connection, over: make(chan struct{}), got: map[string]chan struct{}{}}
}

// holder returns the id of the token that the client showed; empty before HELLO.
func (s *session) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// serve reads lines until the client leaves, is silent for too long, or breaks a rule.
func (s *session) serve(ctx context.Context) {
	defer s.channel.remove(s)
	defer func() { _ = s.connection.Close(); close(s.over) }()

	lines := bufio.NewScanner(s.connection)
	lines.Buffer(make([]byte, 4<<10), maxLine)
	limit := maxHello
	for {
		if err := s.connection.SetReadDeadline(time.Now().Add(limit)); err != nil || !lines.Scan() {
			return
		}

		command, rest, _ := strings.Cut(lines.Text(), " ")
		about := command
		if id, _, _ := strings.Cut(rest, " "); command == "SAY" { // a token is not repeated
			about += " " + id
		}

		err := s.obey(ctx, command, rest)
		if err != nil && s.write("- "+about+" "+quoted(fault.Of(err).Public)) != nil || s.holder() == "" {
			return // who does not say who it is gets one try
		}
		limit = maxIdle
	}
}

// obey does what one line asks for.
func (s *session) obey(ctx context.Context, command, rest string) error {
	switch {
	case command == "HELLO":
		return s.hello(ctx, rest)
	case s.holder() == "":
		return fault.New(fault.Unauthenticated, "say HELLO with a token first")
	case command == "SAY":
		return s.say(ctx, rest)
	case command == "GOT":
		s.mu.Lock()
		defer s.mu.Unlock()
		if waiting, is := s.got[rest]; is {
			close(waiting)
			delete(s.got, rest)
		}
		return nil
	}
	return fault.New(fault.Malformed, "the commands are HELLO, SAY and GOT")
}

// hello takes tokens that open agents to peers.
func (s *session) hello(ctx context.Context, text string) error {
	token, err := s.find(ctx, text)
	if err != nil {
		return err
	}

	s.mu.Lock()
	s.secret, s.id = text, token.ID
	s.mu.Unlock()
	return s.write("+ HELLO " + bearer.Address(token, s.channel.node.Domain))
}

// find reads a token; one that the operator revoked opens nothing, also on a connection that is open already.
func (s *session) find(ctx context.Context, text string) (exchange.Token, error) {
	token, found, err := s.channel.tokens.Find(ctx, text)
	switch {
	case err != nil:
		return token, fault.RetryIn(0, "the server cannot look for the token just now", err)
	case !found, !token.Valid(time.Now()), token.Scope != exchange.TokenPeer:
		return token, fault.New(fault.Unauthenticated, "the token opens nothing here; the operator makes one with: inbox tokens create NAME")
	}
	return token, nil
}

// say hands a message over. The client hears + only after it is stored; when it does not, it says the same line again.
func (s *session) say(ctx context.Context, rest string) error {
	id, rest, _ := strings.Cut(rest, " ")
	name, quoted, _ := strings.Cut(rest, " ")
	var text string
	if err := json.Unmarshal([]byte(quoted), &text); err != nil || id == "" || text == "" {
		return fault.New(fault.Malformed, `write: SAY id agent "text"`)
	}

	token, err := s.find(ctx, s.secret)
	if err != nil {
		return err
	}

	agent, known := s.channel.node.Directory.Agent(name)
	if !known || token.Agent != "" && token.Agent != agent.Name {
		return fault.Newf(fault.NotFound, "there is no agent %s for this token", name)
	}

	in, err := s.channel.inbound(token, agent, id, text)
	if err != nil {
		return err
	}
	if _, err := s.channel.node.Receiver.Receive(ctx, in); err != nil {
		return err
	}

	return s.write("+ SAY " + id)
}

// answer writes an answer and waits for its GOT.
func (s *session) answer(ctx context.Context, id, message, text string) error {
	waiting := make(chan struct{})
	s.mu.Lock()
	s.got[id] = waiting
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.got, id)
	}()

	if err := s.write("ANSWER " + id + " " + message + " " + quoted(text)); err != nil {
		return err
	}

	timer := time.NewTimer(maxGot)
	defer timer.Stop()
	select {
	case <-waiting:
		return nil
	case <-s.over:
		return errAbsent
	case <-timer.C:
		return errors.New("the client did not say GOT")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil { // a string always encodes
		panic(err)
	}
	return string(encoded)
}

func (s *session) write(line string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.connection.SetWriteDeadline(time.Now().Add(maxWrite)); err != nil {
		return err
	}
	_, err := s.connection.Write([]byte(line + "\n"))
	return err
}
