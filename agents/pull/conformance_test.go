package pull

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/agents/agenttest"
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
