package database

import (
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"inbox/engine/store/storetest"
)

// everyTable lists all tables of a database, those of extensions of SQLite apart.
var everyTable = map[string]string{
	"sqlite":   `SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'virtual') AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`,
	"postgres": `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'`,
}

// TestEveryTableIsCopied: a table is in a backup with all columns of both databases, or it is declared derived. A virtual table of SQLite
// needs such a declaration too: it says what fills it again.
func TestEveryTableIsCopied(t *testing.T) {
	copied := map[string]map[string][]Column{}
	declared := map[string]bool{}
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		options := testOptions(storetest.Directory(t, func(directory string) (io.Closer, error) { return Open(t.Context(), testOptions(directory)) }))
		options.URL, options.Connections = url(t), 2
		s, err := Open(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		snapshot, err := s.Snapshot(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}

		copied[name] = map[string][]Column{}
		for _, table := range snapshot.Tables {
			copied[name][table.Name] = table.Columns
		}
		err = pairs(t.Context(), snapshot.connection, everyTable[name], 1, func(row []string) error {
			_, derived := derivedTables[row[0]]
			declared[row[0]] = declared[row[0]] || derived
			if copied[name][row[0]] == nil && !derived {
				t.Errorf("%s: %s is neither copied nor in derivedTables", name, row[0])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}

	for table := range derivedTables {
		if !declared[table] {
			t.Errorf("derivedTables names %s, which is no table", table)
		}
	}
	lite, postgres := copied["sqlite"], copied["postgres"]
	if len(lite) < 20 || !slices.Equal(slices.Sorted(maps.Keys(lite)), slices.Sorted(maps.Keys(postgres))) {
		t.Errorf("the tables differ:\n%v\n%v", slices.Sorted(maps.Keys(lite)), slices.Sorted(maps.Keys(postgres)))
	}
	for table, columns := range lite {
		if !slices.Equal(columns, postgres[table]) {
			t.Errorf("%s: the columns differ:\n%v\n%v", table, columns, postgres[table])
		}
	}
}
