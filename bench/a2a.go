package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

// a2aConnections are the numbers of clients that wait for their answers at once. The last scenario has the name that it
// had when it was the only one.
var a2aConnections = []struct {
	name    string
	clients int
}{{"a2a_echo_1", 1}, {"a2a_echo_16", 16}, {"a2a_echo", 64}, {"a2a_echo_256", 256}}

const a2aStreams = 16

func a2aScenarios() []scenario {
	var list []scenario
	for _, c := range a2aConnections {
		about := fmt.Sprintf("blocking `SendMessage` with the echo in the answer, %d connections", c.clients)
		if c.clients == 1 {
			about = "blocking `SendMessage` with the echo in the answer, one connection"
		}
		list = append(list, scenario{name: c.name, about: about, run: func(ctx context.Context, w *world, server *instance.Instance) (measurement, error) {
			return w.withToken(ctx, server, func(peer load.A2APeer) (measurement, error) { return w.echoes(ctx, peer, c.clients) })
		}})
	}

	return append(list, scenario{
		name: "a2a_first_event", about: fmt.Sprintf("`SendStreamingMessage`: time to the first event, as fast as %d clients go that read their streams to the end", a2aStreams),
		run: func(ctx context.Context, w *world, server *instance.Instance) (measurement, error) {
			return w.withToken(ctx, server, func(peer load.A2APeer) (measurement, error) { return w.firstEvents(ctx, peer) })
		},
	})
}

func (w *world) withToken(ctx context.Context, server *instance.Instance, measure func(load.A2APeer) (measurement, error)) (measurement, error) {
	token, err := server.Token(ctx, "bench")
	if err != nil {
		return measurement{}, err
	}
	return measure(load.A2APeer{URL: server.URL() + "/a2a/echo", Token: token, Client: w.client})
}

// question is of some ordinary length.
const question = "a question of some ordinary length"

func (w *world) echoes(ctx context.Context, peer load.A2APeer, clients int) (measurement, error) {
	var next atomic.Int64
	return saturate(ctx, w.duration, clients, func(int) error {
		task, err := peer.Send(ctx, load.SendBody(fmt.Sprintf("message-%d", next.Add(1)), question, false))
		if err == nil && task.Status.State != "TASK_STATE_COMPLETED" {
			err = fmt.Errorf("the task is %s", task.Status.State)
		}
		return err
	})
}

// firstEvents measures until the first event of each stream; the rate is that of whole streams.
func (w *world) firstEvents(ctx context.Context, peer load.A2APeer) (measurement, error) {
	var next atomic.Int64
	firsts := make([][]time.Duration, a2aStreams)
	m, err := saturate(ctx, w.duration, a2aStreams, func(worker int) error {
		body := bytes.Replace(load.SendBody(fmt.Sprintf("message-%d", next.Add(1)), question, false), []byte("SendMessage"), []byte("SendStreamingMessage"), 1)
		first, err := stream(ctx, peer, body)
		if err == nil {
			firsts[worker] = append(firsts[worker], first)
		}
		return err
	})

	m.completed, m.latencies = len(m.latencies), nil
	for _, some := range firsts {
		m.latencies = append(m.latencies, some...)
	}

	return m, err
}

// stream reads one stream to its end and returns the time until its first event.
func stream(ctx context.Context, peer load.A2APeer, body []byte) (first time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, peer.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("A2A-Version", "1.0")
	request.Header.Set("Authorization", "Bearer "+peer.Token)
	started := time.Now()
	response, err := peer.Client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()

	ended := false
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if !bytes.HasPrefix(lines.Bytes(), []byte("data:")) {
			continue
		}
		if first == 0 {
			first = time.Since(started)
		}
		ended = bytes.Contains(lines.Bytes(), []byte("TASK_STATE_COMPLETED"))
	}

	if err := lines.Err(); err != nil {
		return 0, err
	}
	if !ended {
		rest, _ := io.ReadAll(response.Body)
		return 0, fmt.Errorf("the stream ended early (HTTP status %d) %s", response.StatusCode, rest)
	}

	return first, nil
}

// a2aRivals stand beside each of our scenarios.
func a2aRivals() []rival {
	const name, about = "A2A Go SDK", "the server of `github.com/a2aproject/a2a-go/v2` with an agent that echoes (`bench/a2asdk`); it keeps tasks in memory, asks for no token, and forgets with the process"
	var list []rival
	for _, c := range a2aConnections {
		list = append(list, rival{name, about, c.name, besideSDK(func(ctx context.Context, w *world, peer load.A2APeer) (measurement, error) {
			return w.echoes(ctx, peer, c.clients)
		})})
	}

	return append(list, rival{name, about, "a2a_first_event", besideSDK(func(ctx context.Context, w *world, peer load.A2APeer) (measurement, error) {
		return w.firstEvents(ctx, peer)
	})})
}

// besideSDK runs this program as bench/a2asdk and measures it.
func besideSDK(measure func(context.Context, *world, load.A2APeer) (measurement, error)) func(context.Context, *world, string) (measurement, int64, error) {
	return func(ctx context.Context, w *world, _ string) (measurement, int64, error) {
		program, err := os.Executable()
		if err != nil {
			return measurement{}, 0, err
		}

		command := w.placed(ctx, program, "-a2asdk", w.http)
		command.Stderr = os.Stderr

		if err := command.Start(); err != nil {
			return measurement{}, 0, err
		}
		defer func() { _ = command.Wait() }()
		defer func() { _ = command.Process.Signal(syscall.SIGTERM) }()

		if err := w.awaitAnswer(ctx, "http://"+w.http+"/"); err != nil {
			return measurement{}, 0, err
		}

		m, err := measure(ctx, w, load.A2APeer{URL: "http://" + w.http, Client: w.client})
		if err != nil {
			return m, 0, err
		}

		memory, err := residentMemory(command.Process.Pid)
		return m, memory, err
	}
}
