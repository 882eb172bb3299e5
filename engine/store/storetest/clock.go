package storetest

import (
	"context"
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Clock gives a PostgreSQL database a clock of its own. It returns the address by which the clock counts, and a function that sets it;
// the zero time is that of the server.
func Clock(t testing.TB, address string) (within string, set func(time.Time)) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close(context.Background()) })
	execute := func(statement string, arguments ...any) {
		t.Helper()
		if _, err := connection.Exec(t.Context(), statement, arguments...); err != nil {
			t.Fatal(err)
		}
	}

	// The schema stands before that of PostgreSQL, whose function it hides.
	execute(`CREATE SCHEMA clock; CREATE TABLE clock.present (at timestamptz); INSERT INTO clock.present VALUES (NULL);
		CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql
		AS $$ SELECT COALESCE((SELECT at FROM clock.present), pg_catalog.statement_timestamp()) $$`)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", "public,clock,pg_catalog")
	u.RawQuery = query.Encode()

	return u.String(), func(at time.Time) {
		t.Helper()
		// One statement: a node that asks meanwhile must not get the time of the server.
		execute(`UPDATE clock.present SET at = $1`, sql.NullTime{Time: at, Valid: !at.IsZero()})
	}
}
