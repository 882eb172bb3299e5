package pipeline

import (
	"fmt"
	"testing"

	"inbox/exchange"
)

// TestRememberedBacklogIsBounded checks that messages waiting for a slot are kept in memory up to maxBacklog bytes, that a message with a slot is
// always kept, and that forgetting one frees its bytes.
func TestRememberedBacklogIsBounded(t *testing.T) {
	h := newBroker()
	expect := func(i int, hasSlot bool) bool {
		id := fmt.Sprint("turn ", i)
		h.expect(exchange.TurnRecord{ID: id}, maxRemembered, true, hasSlot)
		entry, _ := h.expectation(id)
		return entry.accepted != nil
	}
	room := maxBacklog / (maxRemembered + rememberedTurn)
	for i := range room {
		if !expect(i, false) {
			t.Fatalf("message %d of %d is not remembered", i, room)
		}
	}
	if expect(room, false) {
		t.Error("the backlog grows beyond its bound")
	}
	if !expect(room+1, true) {
		t.Error("a message that runs at once is not remembered")
	}

	h.finished(exchange.TurnRecord{ID: "turn 0"})
	h.forget("turn 1")
	h.forget(fmt.Sprint("turn ", room))
	if !expect(room+2, false) || !expect(room+3, false) || expect(room+4, false) {
		t.Error("what is forgotten makes no room, or too much of it")
	}
}
