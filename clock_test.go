package inbox_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"inbox/engine/store/storetest"
	"inbox/inboxtest"
	"inbox/internal/await"
)

// TestNodeWithAWrongClockDoesNoWork: a node whose clock is too far from the database's is not ready, accepts nothing and says what to do. When
// the clocks agree it goes on by itself.
func TestNodeWithAWrongClockDoesNoWork(t *testing.T) {
	for name, database := range map[string]string{"ahead": "- INTERVAL '2 hours'", "behind": "+ INTERVAL '10 minutes'"} {
		t.Run(name, func(t *testing.T) {
			address := storetest.Postgres(t)
			connection, err := pgx.Connect(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = connection.Close(context.Background()) })
			// The database has another clock for those who look into this schema first.
			set := func(off string) {
				t.Helper()
				_, err := connection.Exec(t.Context(), `CREATE SCHEMA IF NOT EXISTS clock; CREATE OR REPLACE FUNCTION clock.statement_timestamp() RETURNS timestamptz
					STABLE LANGUAGE sql AS $$ SELECT pg_catalog.statement_timestamp() `+off+` $$`)
				if err != nil {
					t.Fatal(err)
				}
			}
			set(database)
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			query := u.Query()
			query.Set("search_path", "public,clock,pg_catalog")
			u.RawQuery = query.Encode()

			server := inboxtest.Start(t, "INBOX_DATABASE_URL="+u.String())
			token := server.Token("client")
			send := func(id string) (int, string) {
				status, _, body := server.Read(http.MethodPost, "/a2a/echo", token, fmt.Sprintf(
					`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"%s","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`, id), "A2A-Version", "1.0")
				return status, body
			}

			status, _, body := server.Read(http.MethodGet, "/readyz", "", "")
			if status != http.StatusServiceUnavailable || !strings.Contains(body, "the clock of this node is") || !strings.Contains(body, name) || !strings.Contains(body, "NTP") {
				t.Errorf("/readyz: %d %s", status, body)
			}
			if status, body := send("m1"); !strings.Contains(body, "cannot accept messages right now") {
				t.Errorf("a message: %d %s", status, body)
			}

			set("")
			await.Until(t, "the node is ready", func() bool {
				status, _, _ := server.Read(http.MethodGet, "/readyz", "", "")
				return status == http.StatusOK
			})
			if status, body := send("m2"); status != http.StatusOK || strings.Contains(body, `"error"`) || !strings.Contains(body, "hello") {
				t.Errorf("a message afterwards: %d %s", status, body)
			}
		})
	}
}
