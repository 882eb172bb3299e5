package llm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/agents/runtime/tool"
	"inbox/internal/await"
)

// BenchmarkConcurrentStreams holds 1,000 turns open in the middle of their answer and reports the memory of the process
// per turn, connections of both sides included.
func BenchmarkConcurrentStreams(b *testing.B) {
	const turns = 1000
	address := holdingServer(b)
	for b.Loop() {
		ctx, cancel := context.WithCancelCause(b.Context())
		provider, err := Connect(Connection{API: APIOpenAI, BaseURL: address, Client: newBenchClient(b)})
		if err != nil {
			b.Fatal(err)
		}
		agent, err := New(Options{Provider: provider, Model: "m"})
		if err != nil {
			b.Fatal(err)
		}
		before := inUse()
		var begun, ended sync.WaitGroup
		begun.Add(turns)
		for i := range turns {
			ended.Go(func() {
				first := true
				for delta, err := range agent.Handle(ctx, agenttest.Turn(fmt.Sprint(i), agenttest.Messages()["with history"])) {
					if err == nil && first && delta.Text != "" {
						first = false
						begun.Done()
					}
				}
			})
		}
		await.Done(b, begun.Wait, "the first words of all turns")
		b.ReportMetric(float64(inUse()-before)/turns/1024, "KiB/turn")
		cancel(errors.New("enough"))
		await.Done(b, ended.Wait, "the end of all turns")
		closeIdle(provider)
	}
}

func inUse() int64 {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return int64(memory.HeapInuse + memory.StackInuse)
}

// holdingServer sends the beginning of a stream to everybody and then nothing.
func holdingServer(b *testing.B) string {
	b.Helper()
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var connections sync.WaitGroup
	b.Cleanup(func() { _ = listener.Close(); await.Done(b, connections.Wait, "the end of all connections") })
	connections.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { hold(connection) })
		}
	})
	return "http://" + listener.Addr().String()
}

func hold(connection net.Conn) {
	defer connection.Close()
	buffer := make([]byte, 512)
	for answered := false; ; {
		if _, err := connection.Read(buffer); err != nil {
			return
		}
		if !answered {
			answered = true
			body := openAIHello[:len(openAIHello)/2]
			_, _ = fmt.Fprintf(connection, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(openAIHello), body)
		}
	}
}

// BenchmarkTurn is the agent's own work for a turn with one tool call: prompt, loop, two requests in memory, answer.
func BenchmarkTurn(b *testing.B) {
	tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
	var asked atomic.Int64
	model := modelFunc(func(_ context.Context, _ Request, yield func(Delta) bool) error {
		turn := says("Found ", "it.")
		if asked.Add(1)%2 == 1 {
			turn = calls("find", `{"q":"x"}`)
		}
		for _, delta := range turn {
			if !yield(delta) {
				return nil
			}
		}
		return nil
	})
	agent, err := New(Options{Provider: model, Model: "m", Tools: []Tools{tools}})
	if err != nil {
		b.Fatal(err)
	}
	turn := agenttest.Turn("bench", agenttest.Messages()["with history"])
	turn.Permits = permitAll
	b.ReportAllocs()
	for b.Loop() {
		drain(b, agent, turn)
	}
}

func drain(b *testing.B, agent agents.Agent, turn agents.Turn) {
	b.Helper()
	for _, err := range agent.Handle(b.Context(), turn) {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStream is the decoding of one short stream.
func BenchmarkStream(b *testing.B) {
	for name, recording := range map[string]struct{ api, body string }{
		"openai": {APIOpenAI, openAICalls}, "anthropic": {APIAnthropic, anthropicCalls},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(recording.body)))
			for b.Loop() {
				if _, err := read(recording.api, pieces(recording.body, 100), false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
