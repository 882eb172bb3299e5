package backup_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"inbox/engine/backup"
	"inbox/engine/store"
	"inbox/engine/store/database"
	"inbox/exchange"
)

// olderSchema is the version of the backup in testdata, which the program of then wrote (its name has today's form): a server with an answered and a
// held mail, a large one, a task, a token and a block. Its keys were made for it.
const olderSchema = 26

// unpacked returns the directory of that backup.
func unpacked(t *testing.T) string {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", fmt.Sprintf("schema%d.tar.gz", olderSchema)))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}

	directory := t.TempDir()
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return directory
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(directory, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			var content []byte
			if content, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(path, content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// cells are the values of a row by their columns, as texts.
type cells map[string]string

// backedUp reads the rows of a table as the files of a backup have them.
func backedUp(t *testing.T, directory string, manifest *backup.Manifest, table backup.Table) (rows []cells) {
	t.Helper()
	file, err := os.Open(filepath.Join(directory, "snapshots", manifest.Name, table.Path))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var values []json.RawMessage
		if err := json.Unmarshal(lines.Bytes(), &values); err != nil {
			t.Fatal(err)
		}
		row := cells{}
		for i, column := range table.Columns {
			var text string
			if json.Unmarshal(values[i], &text) != nil {
				text = string(values[i])
			}
			row[column] = text
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// storedCells reads all rows of a database by table.
func storedCells(t *testing.T, s *store.Store) map[string][]cells {
	t.Helper()
	view, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = view.Close() }()
	rows := map[string][]cells{}
	for _, table := range view.Tables {
		rows[table.Name] = []cells{}
		err := view.Each(t.Context(), table, func(values []any) error {
			row := cells{}
			for i, column := range table.Columns {
				row[column.Name] = fmt.Sprint(values[i])
			}
			rows[table.Name] = append(rows[table.Name], row)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// TestOlderSchemaIsRestored: a backup of an older version has all its rows in either database of this one, in the newest schema, and its messages are
// found by state and, when they are indexed, by words.
func TestOlderSchemaIsRestored(t *testing.T) {
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			directory, to := unpacked(t), newPlace(t, kind)
			manifest, err := backup.Read(directory, "")
			if err != nil || manifest.Domains[0].SchemaVersion != olderSchema {
				t.Fatalf("%+v, %v", manifest, err)
			}
			restored, err := backup.Restore(t.Context(), backup.RestoreOptions{Directory: directory, Manifest: manifest, Targets: []backup.Target{to.target()}})
			if err != nil || restored[0].Contents != 2 {
				t.Fatalf("%+v, %v", restored, err)
			}

			opened := to.open(t)
			view, err := opened.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			newest, err := database.KnownSchema()
			if err != nil || view.Version != newest {
				t.Errorf("the schema is %d, %v; want %d", view.Version, err, newest)
			}
			if err := view.Close(); err != nil {
				t.Error(err)
			}

			got := storedCells(t, opened)
			for _, table := range manifest.Domains[0].Tables {
				there, exists := got[table.Table]
				if !exists && table.Rows > 0 {
					t.Errorf("the table %s with %d rows is gone", table.Table, table.Rows)
				}
				for _, row := range backedUp(t, directory, manifest, table) {
					same := func(other cells) bool {
						for column, value := range row {
							if now, kept := other[column]; kept && now != value {
								return false
							}
						}
						return true
					}
					if !slices.ContainsFunc(there, same) {
						t.Errorf("%s has not the row %v", table.Table, row)
					}
				}
			}

			for state, want := range map[string]int{exchange.StateAnswered: 3, exchange.StateHeld: 1} {
				found, err := opened.Arrivals(t.Context(), exchange.ArrivalFilter{States: []string{state}, Limit: 10})
				if err != nil || len(found.Turns) != want {
					t.Errorf("%d messages are %s, %v; want %d", len(found.Turns), state, err, want)
				}
			}
		})
	}
}
