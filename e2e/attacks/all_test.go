package attacks

import "testing"

const agents = `
[[agents]]
name = "echo"
kind = "echo"

[[agents]]
name = "helper"
kind = "echo"

[[agents]]
name = "open"
kind = "echo"
unverified = "answer"

[[agents]]
name = "away"
kind = "pull"
unverified = "answer"
`

// attacks are all of them, and which the database has a part in.
var attacks = []struct {
	run      func(*watched)
	database bool
}{
	{(*watched).explodingMail, false}, {(*watched).explodingPart, false}, {(*watched).explodingMarkdown, false}, {(*watched).deepJSON, false},
	{(*watched).strandedGuests, true}, {(*watched).deadDestination, false},
	{(*watched).promisedBodies, false}, {(*watched).slowBodies, false}, {(*watched).stalledMails, false},
	{(*watched).forgedKeys, false}, {(*watched).forgedPeers, false},
	{(*watched).manySessions, false}, {(*watched).wanderingGuest, false},
	{(*watched).hugeMails, false}, {(*watched).heldMails, true},
	{(*watched).namesake, false},
	{(*watched).metrics, false}, {(*watched).borrowedName, false}, {(*watched).capturedMessage, false}, {(*watched).capturedDeed, false},
}

// TestOneStrangerStopsNobody tries each attack against one server, one after the other, while honest peers write: all of them on
// SQLite, and on PostgreSQL those that a database has a part in, or all when there is time.
func TestOneStrangerStopsNobody(t *testing.T) {
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			shop := openShop(t)
			configured := agents + private + scripted(t, "parrot", "unverified = \"answer\"\n", parrot) + shop.agent(t)
			w := begin(t, settings{database: database(t, kind), agents: configured, more: connector + shop.payments()}).watch()
			w.onePaymentForMany(shop)
			for _, attack := range attacks {
				if kind == "sqlite" || judged || attack.database {
					attack.run(w)
				}
			}
		})
	}
}
