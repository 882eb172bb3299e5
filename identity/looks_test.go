package identity

import (
	"fmt"
	"testing"
	"time"
)

// One invented key took the refresh of half a minute from everyone who had evidence with a new key.
func TestInventedKeysCostTheirInventor(t *testing.T) {
	bubble(t, nil, func(t *testing.T, b *bench) {
		b.wants(t, "", 1)
		b.host = mustKey(t, connector)
		b.wants(t, CodeUnknownKey, 2)
		b.publish()
		invented := b.host
		b.host = mustKey(t, connector)
		b.publish()
		b.wants(t, "", 3)
		b.host = invented
		b.wants(t, CodeUnknownKey, 3)
	})
}

func TestLooks(t *testing.T) {
	var looks Looks
	now := time.Unix(1_800_000_000, 0)
	take := func(caller, key string) (may, full bool) {
		if may, full = looks.May(caller, key, now, time.Minute); may {
			looks.Note(caller, key, now)
		}
		return may, full
	}
	for i := range 2 * MaxLooksOne {
		if may, full := take("forger", fmt.Sprint(i)); may != (i < MaxLooksOne) || full {
			t.Errorf("look %d: %v %v", i, may, full)
		}
	}
	if may, _ := take("ann", "0"); !may {
		t.Error("the key that another caller looked for cannot be looked for")
	}
	if may, _ := take("ann", "0"); may {
		t.Error("the same key twice")
	}
	for i := range MaxLooks {
		take(fmt.Sprint("crowd", i), "x")
	}
	if may, full := take("bob", "new"); may || !full || len(looks) != MaxLooks {
		t.Errorf("%v %v with %d looks", may, full, len(looks))
	}
	if may, full := take("ann", "0"); may || full {
		t.Errorf("a key that is known to be missing: %v %v", may, full)
	}
	now = now.Add(time.Minute)
	if may, _ := take("bob", "new"); !may || len(looks) != 1 {
		t.Errorf("a minute later: %v with %d looks", may, len(looks))
	}
}
