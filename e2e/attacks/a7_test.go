package attacks

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"inbox/e2e/load"
)

// private is an agent that only one account may write to.
const private = `
[[agents]]
name = "private"
kind = "echo"
access = "rules"

[[agents.rules]]
effect = "allow"
address = "@ana@names.example"
`

// namesake: a rule about @ana@host let in every actor of that host whose preferredUsername was ana.
func (a *watched) namesake() {
	host := a.fediverse("names.example", func(writer http.ResponseWriter, request *http.Request) bool {
		if request.URL.Path != "/users/mallory" {
			return false // WebFinger of ana names /users/ana
		}
		mallory := load.Person{Name: "ana", ID: "https://names.example/users/mallory", Key: must(keys())(a.t)}
		(&community{}).write(writer, "application/activity+json", mallory.Document())
		return true
	})
	mallory := load.Person{Name: "ana", ID: "https://names.example/users/mallory", Key: must(keys())(a.t)}
	var mention = func(ctx context.Context, person load.Person, n int) (int, <-chan time.Time, error) {
		return host.mention(ctx, "62.13.1.7", person, "private", strconv.Itoa(n), "let me in "+strconv.Itoa(n), load.Signature{})
	}
	result := a.attack("A7", "20 notes of an actor who calls itself by an allowed name", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 20, 2, func(_, i int) {
			status, _, err := mention(ctx, mallory, i)
			if err != nil {
				heard.add("a broken connection")
				return
			}
			heard.add(strconv.Itoa(status))
		})
	}, a.newcomers(1, "the allowed account", func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
		begun := time.Now()
		_, answer, err := mention(ctx, host.person("ana"), n)
		return begun, answer, err
	}))
	answered, err := a.server.Column(a.t.Context(), "SELECT id FROM turns WHERE agent = 'private' AND state = 'answered'")
	if err != nil || len(answered) > 1 {
		a.t.Errorf("A7: %d messages were answered, want that of ana alone (%v)", len(answered), err)
	}
	a.cheap(result, 50*time.Millisecond, 50<<20)
}
