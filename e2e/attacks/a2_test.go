package attacks

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"inbox/e2e/load"
)

// strandedGuests: 590 guest messages to an agent that no one works for stopped every other agent for over 12 minutes.
func (a *watched) strandedGuests() {
	const networks = 20 // each brings as much as one sender may write in a minute
	result := a.attack("A2", "590 guest mails to a pull agent that no program polls", func(ctx context.Context, heard *answers) {
		guests := make([]forger, networks)
		for network := range guests {
			guests[network] = forger{w: a.world, source: fmt.Sprintf("62.1.%d.7", network), heard: heard}
		}
		a.spread(ctx, 590, networks, func(network, i int) {
			guests[network].bring(ctx, forged{
				from: fmt.Sprintf("guest%d", i), agent: "away", key: fmt.Sprintf("stranded-%d", i), mediaType: "text/plain",
				body: fmt.Sprintf("are you there? I am number %d", i),
			})
		})
		for network := range guests {
			guests[network].end()
		}
	})
	waiting, err := a.server.Column(a.t.Context(), "SELECT id FROM turns WHERE agent = 'away' AND state = 'accepted'")
	if err != nil || len(waiting) < 500 {
		a.t.Errorf("A2: %d messages wait for the agent that is away, want most of them (%v); the attacker heard %s", len(waiting), err, result.answers)
	}
	a.cheap(result, 50_000_000, 150<<20)
}

// deadDestination: deliveries to a server that takes connections and never answers.
func (a *watched) deadDestination() {
	ended := make(chan struct{})
	a.t.Cleanup(func() { close(ended) })
	dead := a.fediverse("dead.example", func(_ http.ResponseWriter, request *http.Request) bool {
		if request.Method != http.MethodPost {
			return false
		}
		select {
		case <-ended:
		case <-request.Context().Done():
		}
		return true
	})
	const persons = 10
	result := a.attack("A2", "250 answers to a server that never takes them", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 250, persons, func(person, i int) {
			status, _, err := dead.mention(ctx, fmt.Sprintf("62.2.%d.7", person), dead.person(fmt.Sprintf("sender%d", person)), "echo", strconv.Itoa(i), fmt.Sprintf("question %d", i), load.Signature{})
			if err != nil {
				heard.add("a broken connection")
				return
			}
			heard.add(strconv.Itoa(status))
		})
	})
	a.heardOnly(result, "202", "429")
	a.cheap(result, 50_000_000, 150<<20)
}
