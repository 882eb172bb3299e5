package attacks

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"inbox/e2e/load"
)

// hangs answers nothing until the test ends.
func (w *world) hangs() func(http.ResponseWriter, *http.Request) bool {
	ended := make(chan struct{})
	w.t.Cleanup(func() { close(ended) })
	return func(_ http.ResponseWriter, request *http.Request) bool {
		select {
		case <-ended:
		case <-request.Context().Done():
		}
		return true
	}
}

// forgedKeys: twenty forged requests in five minutes made every new sender of the named host hear 401, and sixteen slow fetches
// all unknown senders 503.
func (a *watched) forgedKeys() {
	named := a.honest.communities[0]
	slow := a.fediverse("slow.example", a.hangs())
	result := a.attack("A4", "80 forged notes in the name of a host, 80 whose key never comes", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 160, 80, func(_, i int) {
			source := "62.5.1.7"
			from, person, how := named, named.person(fmt.Sprintf("nobody%d", i)), load.Signature{} // a key that is not there
			switch {
			case i%4 == 1: // a key that is there, and another signature
				person, how = named.person(fmt.Sprintf("friend%d", i%3)), load.Signature{Key: otherKey(a.t)}
			case i%2 == 0:
				from, person, source = slow, slow.person(fmt.Sprintf("slow%d", i)), fmt.Sprintf("62.5.%d.8", i%16)
			}
			ctx, cancel := context.WithTimeout(ctx, time.Second) // the attacker does not wait either
			defer cancel()
			status, _, err := from.mention(ctx, source, person, "echo", fmt.Sprintf("forged-%d", i), "let me in", how)
			if err != nil {
				heard.add("nothing in a second")
				return
			}
			heard.add(strconv.Itoa(status))
		})
	}, a.newcomers(8, "fediverse", func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
		begun := time.Now()
		status, answer, err := named.mention(ctx, fmt.Sprintf("192.0.2.%d", 100+n%3), named.person(fmt.Sprintf("newcomer%d", n)), "echo", "first", fmt.Sprintf("hello, I am %d", n), load.Signature{})
		if err == nil && status != http.StatusAccepted {
			err = &load.StatusError{Status: status}
		}
		return begun, answer, err
	}))
	a.heardOnly(result, "401", "429", "503", "nothing in a second")
	a.cheap(result, 50*time.Millisecond, 100<<20)
}

// forgedPeers: the same with the keys of agents elsewhere.
func (a *watched) forgedPeers() {
	const host = "agents.example"
	key, wrong := newPeerKey("k1"), newPeerKey("k1")
	a.neighbour(host, http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/.well-known/jwks.json" {
			http.NotFound(writer, request)
			return
		}
		_, _ = writer.Write(key.set())
	}))
	hang := a.hangs()
	a.neighbour("slow-agents.example", http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) { hang(writer, request) }))
	send := func(ctx context.Context, source, assertion, id, text string) (load.Task, error) {
		peer := load.A2APeer{URL: a.url("/a2a/echo"), Token: assertion, Client: a.client(source)}
		return peer.Send(ctx, load.SendBody(id, text, false))
	}
	var numbers atomic.Int64
	result := a.attack("A4", "80 tokens forged in the name of a host, 80 whose keys never come", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 160, 80, func(_, i int) {
			source := "62.6.1.7"
			assertion := newPeerKey(fmt.Sprintf("unknown%d", i)).assertion(host, "mallory", "echo")
			switch {
			case i%4 == 1:
				assertion = wrong.assertion(host, "mallory", "echo")
			case i%2 == 0:
				assertion, source = key.assertion("slow-agents.example", "mallory", "echo"), fmt.Sprintf("62.6.%d.8", i%16)
			}
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := send(ctx, source, assertion, fmt.Sprintf("forged-%d", i), "let me in")
			if ctx.Err() != nil {
				heard.add("nothing in a second")
				return
			}
			heard.add(outcome(err))
		})
	}, a.newcomers(8, "a2a", func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
		begun, number := time.Now(), numbers.Add(1)
		task, err := send(ctx, fmt.Sprintf("192.0.2.%d", 110+n%3), key.assertion(host, fmt.Sprintf("newcomer%d", number), "echo"), fmt.Sprintf("newcomer-%d", number), "hello")
		answer := make(chan time.Time, 1)
		if strings.HasSuffix(task.Status.State, "COMPLETED") {
			answer <- time.Now()
		}
		return begun, answer, err
	}))
	// JSON-RPC has no status of its own for "try again later": -32603 is the answer of the contract.
	a.heardOnly(result, "401", "429", "503", "error -32603", "nothing in a second")
	a.cheap(result, 50*time.Millisecond, 100<<20)
}

// newcomers are honest senders whom the server has not met: they write during an attack, and are judged like the others.
func (a *watched) newcomers(n int, channel string, send sender) func(context.Context) {
	return func(ctx context.Context) {
		a.spread(ctx, n, n, func(_, i int) { a.honest.one(channel+" newcomer", i, send) })
	}
}
