package activitypub

import "testing"

// TestPeopleOfAReplyAreResolvedOnce: two deliveries of a reply resolve its people at a time and find different ones. The note names those that
// were stored first, to all recipients.
func TestPeopleOfAReplyAreResolvedOnce(t *testing.T) {
	r := newRig(t)
	first, second := []person{{Address: "@bob@peer.example", Actor: "https://peer.example/1"}}, []person{{Address: "@bob@peer.example", Actor: "https://peer.example/2"}}
	for i, found := range [][]person{first, second, second} {
		kept, err := r.adapter.outbox.keepPeople(t.Context(), "0190", found)
		if err != nil || len(kept) != 1 || kept[0] != first[0] {
			t.Errorf("delivery %d names %+v, %v; want %+v", i, kept, err, first)
		}
	}
}
