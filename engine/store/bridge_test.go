package store_test

import (
	"testing"
	"time"

	"inbox/agents/bridge/bridgetest"
	"inbox/agents/channel"
	"inbox/agents/channel/channeltest"
	"inbox/engine/store"
)

// TestBridgeStores holds what is kept for bridges and connectors to the contracts' own suites.
func TestBridgeStores(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			t.Run("queue", func(t *testing.T) {
				bridgetest.Store(t, func(t *testing.T) bridgetest.Setup {
					now := time.Now()
					opened := openWith(t, store.Options{URL: url(t)}).Bridge(func() time.Time { return now })
					return bridgetest.Setup{Store: opened, Advance: func(passed time.Duration) { now = now.Add(passed) }}
				})
			})
			t.Run("session map", func(t *testing.T) {
				channeltest.Sessions(t, func(t *testing.T) channel.Sessions {
					opened := openWith(t, store.Options{URL: url(t)})
					other := opened.SessionMap("somebody else")
					for _, key := range []channel.SessionKey{channel.NewSessionKey("slack-bot", " C1 ", "helper"), channel.NewSessionKey("telegram", "42", "bot")} {
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
