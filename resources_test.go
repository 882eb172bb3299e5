package inbox

import (
	"log/slog"
	"testing"

	"inbox/internal/acme"
	"inbox/internal/config"
)

// TestProvidersOfRecords: what the settings allow is what the client of the authority knows.
func TestProvidersOfRecords(t *testing.T) {
	for _, provider := range config.ACMEProviders() {
		client, err := acme.New(acme.Options{Logger: slog.New(slog.DiscardHandler), Listen: "127.0.0.1:443", DNS: acme.DNS{Provider: provider}})
		if err != nil {
			t.Errorf("%s: %v", provider, err)
			continue
		}
		client.Close()
	}
}
