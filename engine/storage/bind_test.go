package storage

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
)

// changing is a place whose id another node is about to change.
type changing struct {
	read atomic.Int64
	next func(reads int64) (id string, err error)
}

func (c *changing) ID(context.Context) (string, error)  { return c.next(c.read.Add(1)) }
func (c *changing) SetID(context.Context, string) error { panic("this node must not name the place") }

// TestNodeWaitsForOneThatNamesThePlace: of nodes that started at once, one took over from another and had claimed the place, whose id was still
// that of the other. A third node that looked at that moment was refused.
func TestNodeWaitsForOneThatNamesThePlace(t *testing.T) {
	opened, err := store.Open(t.Context(), store.Options{DataDir: t.TempDir(), URL: storetest.Postgres(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	note := func(value string) error {
		return opened.State().Put(t.Context(), databaseNamespace, filesName, []byte(value), time.Time{})
	}
	if err := note(claim + "second"); err != nil {
		t.Fatal(err)
	}

	place := &changing{next: func(reads int64) (string, error) {
		if reads < 5 {
			return "first", nil
		}
		return "second", note("second")
	}}
	bound := make(chan error, 1)
	go func() {
		bound <- bindFiles(t.Context(), Options{DatabaseURL: "postgres", DatabaseName: "the database", BlobURL: "the place"}, opened, place)
	}()
	if err := await.Receive(t, bound, "the end of the start"); err != nil {
		t.Error(err)
	}
}
