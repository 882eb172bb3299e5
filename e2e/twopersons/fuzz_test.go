package twopersons

import (
	"flag"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/engine/store/storetest"
)

var (
	onlyTricks = flag.String("tricks", "", "tricks that all runs use, with commas between them (moves_test.go); empty = each run uses some")
	onlyFaults = flag.String("faults", "", "regular expression of the faults that count, for a hunt past those that are known; empty = all")
	onlyPairs  = flag.String("pairs", "", "pairs of channels, such as mail-A2A, with commas between them; empty = all")
)

// The sequences of `make test` are always the same. A hunt raises the number of runs for each pair, and draws others:
//
//	go test ./e2e/twopersons -run TestTwoPersons -timeout 2h -rapid.checks 2000 -rapid.seed 0
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "6", "rapid.steps": "8", "rapid.seed": "1", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	m.Run()
}

// pairs are all pairs of channels.
func pairs() (all [][2]string) {
	for i, one := range channelNames {
		for _, other := range channelNames[i:] {
			all = append(all, [2]string{one, other})
		}
	}
	return all
}

// onBoth runs a test in a world on each database.
func onBoth(t *testing.T, test func(t *testing.T, w *world)) {
	for name, url := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, url(t)))
		})
	}
}

// TestTwoPersons lets ann and eve write at random, with ids, names, quotes and links of each other, and anything that they have seen. No
// word of one may reach the other unless both were addressed, and no decision may count that the other caused.
func TestTwoPersons(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		for _, pair := range pairs() {
			name := pair[0] + "-" + pair[1]
			if *onlyPairs != "" && !strings.Contains(","+*onlyPairs+",", ","+name+",") {
				continue
			}
			t.Run(name, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					f := draw(w, t, pair, strings.FieldsFunc(*onlyTricks, func(char rune) bool { return char == ',' }))
					defer f.end()
					t.Repeat(f.moves())
				})
			})
		}
	})
}
