package store_test

import (
	"errors"
	"strings"
	"testing"

	"inbox/engine/store"
)

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
			newer, found := errors.AsType[*store.NewerSchema](err)
			if !found || newer.Found != 99999 || newer.Known != version || !strings.Contains(newer.Error(), "start that version, or restore the backup") {
				t.Errorf("opened, or refused with %v", err)
			}
			if columns, err := s.Columns(t.Context(), "back_ends"); err != nil || len(columns) != 0 {
				t.Errorf("the database was changed: %v, %v", columns, err)
			}
		})
	}
}
