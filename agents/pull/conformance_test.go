package pull

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/internal/httpserver"
)

// TestConformance drives the suite of agents through HTTP.
func TestConformance(t *testing.T) {
	for name, way := range map[string]struct {
		loop func(*program) error
		work func(*program, *taken) error
	}{
		"long poll, whole":     {poll, replyWhole},
		"long poll, streaming": {poll, replyStreaming},
		"events, whole":        {follow, replyWhole},
		"events, streaming":    {follow, replyStreaming},
	} {
		t.Run(name, func(t *testing.T) {
			agenttest.Suite{
				New: func(t *testing.T) agents.Agent {
					n := newNode(t, nil, quick)
					startProgram(t, n.listen(t), way.loop, way.work)
					return n.agent
				},
				NewStuck: func(t *testing.T) agents.Agent {
					n := newNode(t, nil, quick)
					startProgram(t, n.listen(t), way.loop, func(*program, *taken) error { return nil })
					return n.agent
				},
			}.Run(t)
		})
	}
}

// TestConformanceWithoutProgram is an agent whose program never comes.
func TestConformanceWithoutProgram(t *testing.T) {
	agenttest.Suite{
		New: func(t *testing.T) agents.Agent {
			n := newNode(t, nil, quick)
			startProgram(t, n.listen(t), poll, replyWhole)
			return n.agent
		},
		NewStuck: func(t *testing.T) agents.Agent { return newNode(t, nil, quick).agent },
	}.Run(t)
}

// follow takes turns from the stream of events until it breaks.
func follow(p *program) error {
	response, err := p.send(http.MethodGet, "/events?max=3", "", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if data, found := strings.CutPrefix(line, "data: "); found {
			var turn taken
			turn.read(p.t, []byte(data))
			if err := p.work(p, &turn); err != nil {
				p.t.Logf("program: %v", err) // the stream goes on: a turn that is over says nothing about the next one
			}
		}
	}
}

// TestStreamOutlivesTheTimeForBodies streams deltas for longer than the server gives other requests to bring a body.
func TestStreamOutlivesTheTimeForBodies(t *testing.T) {
	n := newNode(t, nil, quick)
	server, err := httpserver.New(httpserver.Options{
		Listen: "127.0.0.1:0", Routes: n.service.Routes(), BodyTimeout: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.server = server
	startProgram(t, n.listen(t), poll, func(p *program, turn *taken) error {
		reader, writer := io.Pipe()
		go func() {
			for range 3 {
				later(100 * time.Millisecond)
				_, _ = io.WriteString(writer, `{"kind":"text","text":"x"}`+"\n")
			}
			_ = writer.Close()
		}()
		if _, err := p.post(turn.path("deltas"), "", reader); err != nil {
			return err
		}
		_, err := p.post(turn.path("answer"), "", nil)
		return err
	})
	mustAnswer(t, n.run(t.Context(), question()), "xxx")
}
