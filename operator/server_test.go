package operator

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestShownCertificate looks at a listener whose certificate no authority signed, and at one that is not there.
func TestShownCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil)
	place := strings.TrimPrefix(server.URL, "https://")

	found := shownCertificate(t.Context(), place, "*.example.com")
	if found.Problem == "" || !slices.Contains(found.Names, "example.com") || found.Until.Before(time.Now()) || !strings.Contains(found.Issuer, "Acme Co") {
		t.Errorf("%+v", found)
	}
	server.Close()
	if found := shownCertificate(t.Context(), place, "example.com"); !strings.Contains(found.Problem, "shows none") || !found.Until.IsZero() {
		t.Errorf("%+v", found)
	}
}

// TestNodeIsSilent: three signs may be missed, not more.
func TestNodeIsSilent(t *testing.T) {
	t.Parallel()
	at := time.Now()
	node := RunningNode{SeenAt: at}
	if node.Silent(at.Add(3*NodeSign)) || !node.Silent(at.Add(3*NodeSign+time.Second)) {
		t.Error("a node is silent too early, or too late")
	}
}
