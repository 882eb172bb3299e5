package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
)

var documentCases = map[string]func(*testing.T, *probe){
	"behave like a map":        documentsAsMap,
	"end":                      documentsEnd,
	"are kept":                 documentsKept,
	"first writer wins":        firstWriterWins,
	"keys that cannot be kept": documentKeys,
	"lists are in byte order":  documentOrder,
	"give way":                 documentsGiveWay,
	"change in a transaction":  documentsInTransaction,
	"writers take turns":       documentWritersTakeTurns,
}

// DocumentsTx is what a transaction may do to documents.
type DocumentsTx interface {
	PutDocument(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
	KeepDocument(ctx context.Context, namespace, key string, until time.Time) error
	RemoveDocument(ctx context.Context, namespace, key string) (bool, error)
	ListDocuments(ctx context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error)
}

// documentsKept: the life of a document becomes longer, never shorter, and one that is not there stays so.
func documentsKept(t *testing.T, p *probe) {
	now := time.Now()
	lives := map[string]struct {
		first time.Time
		until time.Time
		there bool
	}{
		"longer": {now.Add(-time.Minute), now.Add(time.Hour), true}, "shorter": {now.Add(time.Hour), now.Add(-time.Minute), true},
		"for ever": {time.Time{}, now.Add(-time.Minute), true}, "ended": {now.Add(-time.Hour), now.Add(-time.Minute), false},
	}
	p.ok(p.InTx(t.Context(), func(tx TrustTx) error {
		for key, life := range lives {
			p.ok(tx.PutDocument(t.Context(), "n", key, []byte("1"), life.first))
			p.ok(tx.KeepDocument(t.Context(), "n", key, life.until))
		}
		return tx.KeepDocument(t.Context(), "n", "none", now.Add(time.Hour))
	}))
	for key, life := range lives {
		if _, found, err := p.Documents.Get(t.Context(), "n", key); err != nil || found != life.there {
			t.Errorf("%s: found %v, %v", key, found, err)
		}
	}
	if _, found, err := p.Documents.Get(t.Context(), "n", "none"); err != nil || found {
		t.Errorf("a document that was not there: %v, %v", found, err)
	}
}

// documentsInTransaction: a transaction sees what it has changed itself, and leaves nothing when it fails.
func documentsInTransaction(t *testing.T, p *probe) {
	failure := errors.New("no")
	work := func(fails bool) error {
		return p.InTx(t.Context(), func(tx TrustTx) error {
			p.ok(tx.PutDocument(t.Context(), "n", "a", []byte("1"), time.Time{}))
			p.ok(tx.PutDocument(t.Context(), "n", "b", []byte("2"), time.Time{}))

			for _, there := range []bool{true, false} {
				if removed, err := tx.RemoveDocument(t.Context(), "n", "a"); err != nil || removed != there {
					t.Errorf("removed %v, %v; want %v", removed, err, there)
				}
			}

			keys, values, err := tx.ListDocuments(t.Context(), "n", "", 10)
			if err != nil || !slices.Equal(keys, []string{"b"}) || string(values[0]) != "2" {
				t.Errorf("inside: %q %q, %v", keys, values, err)
			}
			if fails {
				return failure
			}

			return nil
		})
	}

	for _, fails := range []bool{true, false} {
		if err := work(fails); errors.Is(err, failure) != fails {
			t.Errorf("the transaction says %v", err)
		}
		if count, err := p.Documents.Count(t.Context(), "n"); err != nil || count == 1 == fails {
			t.Errorf("after a transaction that failed %v: %d documents, %v", fails, count, err)
		}
	}
}

// documentWritersTakeTurns: who writes a document first sees everything that earlier writers of it did, so a limit over
// other documents holds.
func documentWritersTakeTurns(t *testing.T, p *probe) {
	const rounds, writers, limit = 10, 8, 3
	for round := range rounds {
		namespace, begin, results := fmt.Sprint("round ", round), make(chan struct{}), make(chan error)
		for i := range writers {
			go func() {
				<-begin
				results <- p.InTx(t.Context(), func(tx TrustTx) error {
					if err := tx.PutDocument(t.Context(), "turn", "k", []byte("{}"), time.Time{}); err != nil {
						return err
					}
					keys, _, err := tx.ListDocuments(t.Context(), namespace, "", writers)
					if err != nil || len(keys) >= limit {
						return err
					}
					return tx.PutDocument(t.Context(), namespace, fmt.Sprint(i), nil, time.Time{})
				})
			}()
		}

		close(begin)
		for range writers {
			p.ok(<-results)
		}

		if count, err := p.Documents.Count(t.Context(), namespace); err != nil || count != limit {
			t.Errorf("round %d: %d documents, %v; want %d", round, count, err, limit)
		}
	}
}

// documentsAsMap does random things to a namespace and to a map and compares.
func documentsAsMap(t *testing.T, p *probe) {
	rapid.Check(t, func(t *rapid.T) {
		namespace, model := newID(), map[string][]byte{}
		key := rapid.StringOfN(rapid.RuneFrom([]rune("aZ/ä😀-_")), 1, 3, -1)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			k, v := key.Draw(t, "key"), rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "value")
			switch rapid.IntRange(0, 2).Draw(t, "action") {
			case 0:
				check(t, p.Documents.Put(p.Context(), namespace, k, v, time.Time{}))
				model[k] = v
			case 1:
				current, inserted, err := p.Documents.PutIfAbsent(p.Context(), namespace, k, v, time.Time{})
				check(t, err)

				if _, there := model[k]; there == inserted {
					t.Fatalf("%q: inserted %v", k, inserted)
				} else if inserted {
					model[k] = v
				}

				if !bytes.Equal(current, model[k]) {
					t.Fatalf("%q: current %q, want %q", k, current, model[k])
				}
			case 2:
				check(t, p.Documents.Delete(p.Context(), namespace, k))
				delete(model, k)
			}
		}

		compare(t, p, namespace, model)
	})
}

// documentsGiveWay is about documents that only take the place of a certain one.
func documentsGiveWay(t *testing.T, p *probe) {
	swap := func(old, value string, want bool) {
		t.Helper()
		swapped, err := p.Documents.Swap(t.Context(), "n", "k", []byte(old), []byte(value), time.Time{})
		if p.ok(err); swapped != want {
			t.Errorf("%q for %q: %v", value, old, swapped)
		}
	}

	claim := func(instead, value, want string) {
		t.Helper()
		c := exchange.Claim{Namespace: "n", Key: "k", Value: []byte(value)}
		if instead != "" {
			c.Instead = []byte(instead)
		}

		p.tx(func(tx pipeline.Tx) error {
			other, err := tx.Claim(t.Context(), c)
			if string(other) != want {
				t.Errorf("%q instead of %q met %q, want %q", value, instead, other, want)
			}
			return err
		})
	}

	alias := func(name, key string, want string) {
		t.Helper()
		p.tx(func(tx pipeline.Tx) error {
			_, err := tx.Claim(t.Context(), exchange.Claim{Namespace: "n", Key: key, Value: []byte("v"), AliasNamespace: "names", Alias: name})
			return err
		})
		value, found, err := p.Documents.Get(t.Context(), "names", name)
		if p.ok(err); !found || string(value) != want {
			t.Errorf("the alias %q of %q leads to %q, want %q", name, key, value, want)
		}
	}

	alias("page", "one", "one")
	alias("page", "another", "one") // the name is taken
	alias("other page", "another 2", "another 2")
	swap("", "a", false)
	claim("", "a", "")
	claim("", "a", "")
	claim("", "b", "a")
	claim("x", "b", "a")
	claim("a", "b\xff", "")
	swap("a", "c", false)
	swap("b\xff", "c", true)
	claim("", "d", "c")
	_, err := p.Documents.Swap(t.Context(), "n", "k", []byte("c"), []byte("d"), time.Now().Add(-time.Second))
	p.ok(err)
	swap("d", "e", false)
	claim("", "e", "")
}

func check(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func compare(t *rapid.T, p *probe, namespace string, model map[string][]byte) {
	want := []string{}
	for key, value := range model {
		want = append(want, key)
		got, found, err := p.Documents.Get(p.Context(), namespace, key)
		if err != nil || !found || !bytes.Equal(got, value) {
			t.Fatalf("%q: %q, %v, %v; want %q", key, got, found, err, value)
		}
	}

	slices.Sort(want)
	several, err := p.Documents.Several(p.Context(), namespace, append([]string{"nobody", "a\x00"}, want...))
	check(t, err)

	if !maps.EqualFunc(several, model, bytes.Equal) {
		t.Fatalf("several: %q, want %q", several, model)
	}

	got, after := []string{}, ""
	for {
		keys, values, err := p.Documents.List(p.Context(), namespace, after, 2)
		check(t, err)

		if len(keys) == 0 {
			break
		}

		for i, key := range keys {
			if !bytes.Equal(values[i], model[key]) {
				t.Fatalf("list: %q is %q", key, values[i])
			}
		}
		got, after = append(got, keys...), keys[len(keys)-1]
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("keys (-want +got):\n%s", diff)
	}
	if count, err := p.Documents.Count(p.Context(), namespace); err != nil || count != int64(len(model)) {
		t.Fatalf("count %d, %v; want %d", count, err, len(model))
	}
}

func documentsEnd(t *testing.T, p *probe) {
	ctx := t.Context()
	p.ok(p.Documents.Put(ctx, "n", "past", []byte("v"), time.Now().Add(-time.Second)))
	p.ok(p.Documents.Put(ctx, "n", "future", []byte("v"), time.Now().Add(time.Hour)))

	if _, found, err := p.Documents.Get(ctx, "n", "past"); found || err != nil {
		t.Errorf("an ended document: %v, %v", found, err)
	}
	if _, found, err := p.Documents.Get(ctx, "n", "future"); !found || err != nil {
		t.Errorf("a living document: %v, %v", found, err)
	}
	if keys, _, err := p.Documents.List(ctx, "n", "", 10); err != nil || len(keys) != 1 {
		t.Errorf("list %v, %v", keys, err)
	}
	if count, err := p.Documents.Count(ctx, "n"); err != nil || count != 1 {
		t.Errorf("count %d, %v", count, err)
	}

	current, inserted, err := p.Documents.PutIfAbsent(ctx, "n", "past", []byte("new"), time.Time{})
	if err != nil || !inserted || string(current) != "new" {
		t.Errorf("over an ended one: %q, %v, %v", current, inserted, err)
	}
}

func firstWriterWins(t *testing.T, p *probe) {
	type result struct {
		current  string
		inserted bool
		err      error
	}

	results := make(chan result)
	for i := range 8 {
		go func() {
			current, inserted, err := p.Documents.PutIfAbsent(t.Context(), "n", "k", []byte{byte('a' + i)}, time.Time{})
			results <- result{string(current), inserted, err}
		}()
	}

	winners, values := 0, map[string]bool{}
	for range 8 {
		r := <-results
		p.ok(r.err)
		values[r.current] = true
		if r.inserted {
			winners++
		}
	}

	if winners != 1 || len(values) != 1 {
		t.Errorf("%d winners, values %v", winners, values)
	}
}

func documentKeys(t *testing.T, p *probe) {
	for _, key := range []string{"a\x00b", "a\xffb", strings.Repeat("x", 3000)} {
		if err := p.Documents.Put(t.Context(), "n", key, nil, time.Time{}); !fault.Is(err, fault.Malformed) {
			t.Errorf("put %.10q: %v", key, err)
		}
		if _, _, err := p.Documents.PutIfAbsent(t.Context(), "n", key, nil, time.Time{}); !fault.Is(err, fault.Malformed) {
			t.Errorf("put if absent %.10q: %v", key, err)
		}
		if _, found, err := p.Documents.Get(t.Context(), "n", key); found || err != nil {
			t.Errorf("get %.10q: %v, %v", key, found, err)
		}
		p.ok(p.Documents.Delete(t.Context(), "n", key))
	}
	p.ok(p.Documents.Put(t.Context(), "n", strings.Repeat("ä", 1024), nil, time.Time{}))
}

func documentOrder(t *testing.T, p *probe) {
	want := []string{"-", "A", "B", "_", "a", "b", "ä"}
	for _, key := range []string{"b", "_", "A", "ä", "-", "B", "a"} {
		p.ok(p.Documents.Put(t.Context(), "n", key, []byte(key), time.Time{}))
	}

	keys, _, err := p.Documents.List(t.Context(), "n", "", 100)
	p.ok(err)

	if _, err := p.Documents.Several(t.Context(), "n", make([]string, 101)); !fault.Is(err, fault.Malformed) {
		t.Errorf("more than 100 at once: %v", err)
	}
	if none, err := p.Documents.Several(t.Context(), "n", nil); err != nil || len(none) != 0 {
		t.Errorf("none of none: %v, %v", none, err)
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
