package e2e

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"inbox/e2e/instance"
)

// Signature schemes, as the peers and the evidence call them.
const (
	draftCavage = "draft-cavage"
	rfc9421     = "rfc9421"
)

// schemeGate stands before the server, as a proxy does, and refuses signatures of one scheme on its behalf: a server
// that takes both never makes a peer knock twice.
type schemeGate struct {
	refuse atomic.Value // string; empty = nothing
	proxy  *httputil.ReverseProxy
}

// behindGate puts the settings behind a gate.
func behindGate(t *testing.T, settings instance.Settings) (*schemeGate, instance.Settings) {
	t.Helper()
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	gate := &schemeGate{proxy: &httputil.ReverseProxy{
		ErrorLog: log.New(io.Discard, "", 0), // while the server is not up yet
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: address})
			r.Out.Host = r.In.Host // signed, and what the server must be called by
		},
	}}
	gate.refuse.Store("")
	front := httptest.NewServer(gate)
	t.Cleanup(front.Close)
	public, err := url.Parse(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	settings.HTTP, settings.Public = address, public.Host
	return gate, settings
}

func (g *schemeGate) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodPost && schemeOf(request.Header) == g.refuse.Load() {
		http.Error(writer, "this scheme is not known here", http.StatusUnauthorized)
		return
	}
	g.proxy.ServeHTTP(writer, request)
}

func schemeOf(header http.Header) string {
	switch {
	case header.Get("Signature-Input") != "":
		return rfc9421
	case header.Get("Signature") != "":
		return draftCavage
	}
	return "none"
}
