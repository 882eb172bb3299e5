package main

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox"
	"inbox/engine/store"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/operator"
)

// withoutSecond are the settings without the second of the three domains.
func withoutSecond(t *testing.T) *inbox.Config {
	t.Helper()
	text := strings.Replace(domainsFile, "[[domains]]\nname = \"second.example\"\n", "", 1)
	text = strings.Replace(text, "[[agents]]\nname = \"helper\"\nkind = \"echo\"\ndomain = \"second.example\"\n", "", 1)
	if err := os.WriteFile(defaultFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := inbox.LoadConfig(defaultFile, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// hasData reports whether the directory of a domain and its database are there.
func hasData(t *testing.T, domain *inbox.Config) bool {
	t.Helper()
	found, err := store.Look(t.Context(), store.Options{URL: domain.DatabaseURL.Reveal(), DataDir: domain.DataDir})
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(domain.DataDir)
	if found.Used != (err == nil) {
		t.Errorf("of the database and the directory one is left: %+v, %v", found, err)
	}
	return found.Used
}

// TestDomainThatARunningServerServesIsNotRemoved: a server that was not restarted since the table was removed still accepts messages for it. A node that crashed does
// not count after a while.
func TestDomainThatARunningServerServesIsNotRemoved(t *testing.T) {
	eachDatabase(t, func(t *testing.T, config *inbox.Config) {
		second := config.Hosted[0]
		remove := func() error {
			_, _, err := runs(t, "domains", "remove", "second.example", "--erase")
			return err
		}

		t.Run("while it is served", func(t *testing.T) {
			server := inboxtest.New(t, defaultFile, os.Environ()...).Serve()
			await.Until(t, "the sign of life of the node", func() bool {
				var nodes []operator.RunningNode
				for _, one := range server.Operator().Persons.Domains {
					if err := one.With(t.Context(), func(ctx context.Context, o *inbox.Operator) (err error) {
						if one.Name == second.Domain {
							nodes, err = o.Nodes.List(ctx)
						}
						return err
					}); err != nil {
						t.Fatal(err)
					}
				}
				return len(nodes) == 1
			})
			withoutSecond(t)
			if err := remove(); err == nil || !strings.Contains(err.Error(), "a running server serves the domain") || !hasData(t, second) {
				t.Errorf("the removal of a served domain ends with %v", err)
			}
		})

		rows := storeOf(t, second)
		crashed, err := json.Marshal(operator.RunningNode{ID: "crashed", Host: "elsewhere", Domain: second.Domain, SeenAt: time.Now().Add(-4 * operator.NodeSign)})
		if err == nil {
			err = rows.State().Put(t.Context(), "nodes", "crashed", crashed, time.Now().Add(time.Hour))
		}
		if err != nil || rows.Close() != nil {
			t.Fatal(err)
		}
		if err := remove(); err != nil || hasData(t, second) {
			t.Errorf("the removal of a domain that nothing serves ends with %v", err)
		}
		if err := remove(); err == nil {
			t.Error("a domain is removed twice")
		}
	})
}

// TestDomainBehindALinkIsRemoved: what the link leads to is deleted, too.
func TestDomainBehindALinkIsRemoved(t *testing.T) {
	config := domainsIn(t, "sqlite")
	second, elsewhere := config.Hosted[0], filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, second.DataDir); err != nil {
		t.Fatal(err)
	}
	annWrote(t, second)
	withoutSecond(t)
	if list, _, err := runs(t, "domains", "list"); err != nil || !strings.Contains(list, "second.example  orphaned") {
		t.Errorf("%v\n%s", err, list)
	}
	if _, _, err := runs(t, "domains", "remove", "second.example", "--erase"); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(elsewhere)
	if err != nil || len(left) != 0 || hasData(t, second) {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestRetentionReachesOrphanedDomains: what a domain stores that is no longer in the settings expires by [retention]. One that cannot be opened does not stop the others, and nothing is made
// for one without a database.
func TestRetentionReachesOrphanedDomains(t *testing.T) {
	eachDatabase(t, func(t *testing.T, config *inbox.Config) {
		second := config.Hosted[0]
		id, recent := annWroteAt(t, second, time.Now().Add(-60*24*time.Hour)), annWrote(t, second)
		broken := filepath.Join(config.DataDir, "domains", "broken.example")
		if err := os.MkdirAll(broken, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(broken, store.File), []byte("not a database"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("INBOX_RETENTION_MESSAGES", "720h")
		withoutSecond(t)

		server := inboxtest.New(t, defaultFile, os.Environ()...).Serve()
		rows := storeOf(t, second)
		defer rows.Close()
		await.Until(t, "the end of the message of the orphaned domain", func() bool { return textIn(t, rows, id) == "" })
		if textIn(t, rows, recent) == "" {
			t.Error("a message is removed before its time")
		}

		if config.DatabaseURL == "sqlite" {
			if _, err := os.Stat(filepath.Join(config.DataDir, "domains", "fourth.example", store.File)); !os.IsNotExist(err) {
				t.Error("a database was made for a domain that has none:", err)
			}
			return
		}
		address, err := url.Parse(config.DatabaseURL.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		left, err := server.Config().OrphanedDomains()
		if err != nil || len(left) != 3 {
			t.Fatalf("%+v, %v", left, err)
		}
		query := address.Query()
		query.Set("search_path", left[1].Schema)
		address.RawQuery = query.Encode()
		if found, err := store.Look(t.Context(), store.Options{URL: address.String(), DataDir: t.TempDir()}); err != nil || found.Used {
			t.Errorf("%s has %+v, %v", left[1].Domain, found, err)
		}
	})
}
