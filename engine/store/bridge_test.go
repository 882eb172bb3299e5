package store_test

import (
	"testing"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/adapters/bridge/contract/contracttest"
	"inbox/engine/store"
)

// TestBridgeStores holds what is kept for bridges and connectors to the contracts' own suites.
func TestBridgeStores(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			queue := func(t *testing.T) contracttest.Setup {
				now := time.Now()
				opened := openWith(t, store.Options{URL: url(t)}).Bridge(func() time.Time { return now })
				return contracttest.Setup{Store: opened, Advance: func(passed time.Duration) { now = now.Add(passed) }}
			}
			t.Run("queue", func(t *testing.T) { contracttest.Store(t, queue) })
			t.Run("recorded queue", func(t *testing.T) { contracttest.RecordedQueue(t, queue) })
			t.Run("recorded session map", func(t *testing.T) {
				contracttest.RecordedSessions(t, func(t *testing.T) contract.Sessions {
					return openWith(t, store.Options{URL: url(t)}).SessionMap("owner")
				})
			})

			t.Run("session map", func(t *testing.T) {
				contracttest.Sessions(t, func(t *testing.T) contract.Sessions {
					opened := openWith(t, store.Options{URL: url(t)})
					other := opened.SessionMap("somebody else")
					for _, key := range []contract.SessionKey{contract.NewSessionKey("slack-bot", " C1 ", "helper"), contract.NewSessionKey("telegram", "42", "bot")} {
						if err := other.SetSession(t.Context(), key, "foreign"); err != nil {
							t.Fatal(err)
						}
						if err := other.ImportSession(t.Context(), key.Imported(), "foreign"); err != nil {
							t.Fatal(err)
						}
					}

					return opened.SessionMap("owner")
				})
			})
		})
	}
}
