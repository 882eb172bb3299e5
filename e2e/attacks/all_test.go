package attacks

import "testing"

const agents = `
[[agents]]
name = "echo"
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

// TestOneStrangerStopsNobody tries each attack against one server, one after the other, while honest peers write.
func TestOneStrangerStopsNobody(t *testing.T) {
	w := begin(t, settings{database: database(t, "sqlite"), agents: agents}).watch()
	w.explodingMail()
	w.explodingPart()
	w.explodingMarkdown()
	w.deepJSON()
	w.strandedGuests()
	w.deadDestination()
	w.promisedBodies()
	w.slowBodies()
	w.forgedKeys()
	w.forgedPeers()
	w.manySessions()
	w.wanderingGuest()
	w.hugeMails()
	w.heldMails()
}
