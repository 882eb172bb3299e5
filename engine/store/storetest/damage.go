package storetest

import (
	"bytes"
	"database/sql"
	"os"
	"testing"

	_ "modernc.org/sqlite" // reads where the pages of a table are

	"inbox/internal/await"
)

// Damage overwrites 200 bytes of the first page of a table of a SQLite database, as a disk may do, whether a server has the file open or not.
// What is committed is in the file before.
func Damage(t testing.TB, file, table string) {
	t.Helper()
	pool, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	var page, size int64
	for query, into := range map[string]*int64{
		`SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = '` + table + `'`: &page, `PRAGMA page_size`: &size,
	} {
		if err := pool.QueryRowContext(t.Context(), query).Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "all pages to be in the file", func() bool { // a reader of the server may keep some in the log, where they are whole
		var busy, pages, moved int64
		if err := pool.QueryRowContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved); err != nil {
			t.Fatal(err)
		}
		return busy == 0
	})
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}

	opened, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opened.WriteAt(bytes.Repeat([]byte{0xa5}, 200), (page-1)*size); err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
}
