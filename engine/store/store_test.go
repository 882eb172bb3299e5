package store_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"inbox/engine/store"
	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/internal/children"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(crashURL); url != "" {
		crash(url)
	}
	if url := os.Getenv(store.RetainURL); url != "" {
		store.RetainUntilKilled(url)
	}
	if url := os.Getenv(store.EraseURL); url != "" {
		store.EraseUntilKilled(url)
	}
	// A case of a property fills whole databases. Those of a longer search are asked for by -rapid.checks.
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(children.Starter))
}

func TestStore(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Bench {
				var lock sync.Mutex
				var notified []string
				s := openWith(t, store.Options{URL: url(t), Notify: func(channel, payload string) {
					lock.Lock()
					defer lock.Unlock()
					notified = append(notified, channel+" "+payload)
				}})

				return storetest.Bench{
					Pipeline: s.Pipeline(), Delivery: s.Deliverer(), Queue: s.Queue(), Records: s, Watched: s, Documents: s.State(),
					Trust: s, Moderation: s, Suppressions: s, Sessions: s, Uploads: s, Bridge: s.Bridge(nil), InTx: func(ctx context.Context, work func(storetest.TrustTx) error) error {
						return s.InTx(ctx, func(tx *store.Tx) error { return work(tx) })
					},
					FreeLeases: s.FreeLeases,
					Notified: func() []string {
						lock.Lock()
						defer lock.Unlock()
						return append([]string(nil), notified...)
					},
				}
			})
		})
	}
}

// TestNewerSchemaIsRefused: a database that a newer program has changed is left as it is.
func TestNewerSchemaIsRefused(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			options := store.Options{URL: url(t), DataDir: t.TempDir()}
			s := openWith(t, options)
			version, err := s.SchemaVersion(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			// The newer one has changed a table, and this one would make it again.
			for _, statement := range []string{
				`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, TRUE)`, `DROP TABLE back_ends`,
				`DELETE FROM goose_db_version WHERE version_id = 18`,
			} {
				if err := s.Execute(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}

			_, err = store.Open(t.Context(), options)
			newer, found := errors.AsType[*database.NewerSchema](err)
			if !found || newer.Found != 99999 || newer.Known != version || !strings.Contains(newer.Error(), "start that version, or restore the backup") {
				t.Errorf("opened, or refused with %v", err)
			}
			if columns, err := s.Columns(t.Context(), "back_ends"); err != nil || len(columns) != 0 {
				t.Errorf("the database was changed: %v, %v", columns, err)
			}
		})
	}
}
