package exchangetest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/engine/store"
	"inbox/exchange/exchangetest"
)

// documents is what both stores can do.
type documents interface {
	Get(ctx context.Context, namespace, key string) ([]byte, bool, error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
	PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) ([]byte, bool, error)
	Swap(ctx context.Context, namespace, key string, old, value []byte, expires time.Time) (bool, error)
	Delete(ctx context.Context, namespace, key string) error
	List(ctx context.Context, namespace, after string, limit int) ([]string, [][]byte, error)
	Count(ctx context.Context, namespace string) (int64, error)
	Several(ctx context.Context, namespace string, keys []string) (map[string][]byte, error)
}

// TestDocumentsAreThoseOfTheStore does the same with both, and compares every answer.
func TestDocumentsAreThoseOfTheStore(t *testing.T) {
	opened, err := store.Open(t.Context(), store.Options{URL: "sqlite", DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})

	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		spaces := []string{fmt.Sprint("one ", round), fmt.Sprint("one ", round, " more")}
		text := rapid.SampledFrom([]string{"a", "b", "c\n", "ß", "a/b"})
		double, stored := exchangetest.NewDocuments(), documents(opened.State())

		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			space, key := rapid.SampledFrom(spaces).Draw(r, "namespace"), text.Draw(r, "key")
			old, value := []byte(text.Draw(r, "old")), []byte(text.Draw(r, "value"))
			does := rapid.SampledFrom([]string{"get", "put", "put if absent", "swap", "delete", "list", "several"}).Draw(r, "does")
			act := func(d documents) (answers []any) {
				ctx, err := t.Context(), error(nil)
				note := func(got ...any) { answers = append(append(answers, got...), err != nil) }
				switch does {
				case "get":
					var got []byte
					var found bool
					got, found, err = d.Get(ctx, space, key)
					note(string(got), found)
				case "put":
					err = d.Put(ctx, space, key, value, time.Time{})
					note()
				case "put if absent":
					var got []byte
					var inserted bool
					got, inserted, err = d.PutIfAbsent(ctx, space, key, value, time.Time{})
					note(string(got), inserted)
				case "swap":
					var swapped bool
					swapped, err = d.Swap(ctx, space, key, old, value, time.Time{})
					note(swapped)
				case "delete":
					err = d.Delete(ctx, space, key)
					note()
				case "list":
					var keys []string
					var values [][]byte
					keys, values, err = d.List(ctx, space, string(old), 2)
					note(fmt.Sprintf("%q %q", keys, values))
				case "several":
					var found map[string][]byte
					found, err = d.Several(ctx, space, slices.Compact([]string{key, string(old)}))
					note(fmt.Sprintf("%q", found))
				}
				count, _ := d.Count(ctx, space)
				return append(answers, count)
			}
			if diff := cmp.Diff(act(stored), act(double)); diff != "" {
				r.Fatalf("%s %q %q (-store +double):\n%s", does, space, key, diff)
			}
		}
	})
}
