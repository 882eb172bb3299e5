package activitypub

import (
	"testing"
	"time"
)

func TestCacheIsBounded(t *testing.T) {
	now := time.Unix(0, 0)
	c := newCache[int](2)
	c.put("a", 1, now.Add(time.Minute))
	c.put("b", 2, now.Add(time.Minute))
	c.get("a", now)
	c.put("c", 3, now.Add(time.Minute))
	if _, found := c.get("b", now); found {
		t.Error("the least recently used entry is still there")
	}
	if value, found := c.get("a", now); !found || value != 1 {
		t.Error("a used entry is gone")
	}
	if _, found := c.get("a", now.Add(time.Minute)); found {
		t.Error("an entry outlives its time")
	}
	if len(c.byKey) != 1 || c.order.Len() != 1 {
		t.Errorf("%d entries, want 1", len(c.byKey))
	}
}
