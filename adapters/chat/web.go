package chat

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the script
	"encoding/hex"
	"net/http"
	"strings"

	"inbox/exchange"
	"inbox/internal/httpserver"
)

//go:embed web/chat.js
var script []byte

//go:generate go tool -modfile=../../tools/go.mod templ generate -path . -log-level warn

var scriptTag = `"` + hex.EncodeToString(func() []byte { sum := sha256.Sum256(script); return sum[:8] }()) + `"`

// pagePolicy lets the page do what its script needs, and nothing else (Content Security Policy 3). Style sheets are made
// by the script, which needs no permission.
const pagePolicy = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func serveScript(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", "text/javascript; charset=utf-8")
	header.Set("Cache-Control", "public, max-age=300")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin") // pages of other sites embed it
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("ETag", scriptTag)

	if strings.Contains(r.Header.Get("If-None-Match"), scriptTag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(script)
}

// pages serves the page of each agent.
type pages struct {
	*site
}

// view is what the page shows.
type view struct {
	exchange.AgentProfile
	Open bool // for guests
}

func (p *pages) servePage(w http.ResponseWriter, r *http.Request) {
	agent, known := p.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		httpserver.WriteFault(w, noAgent())
		return
	}

	var body bytes.Buffer
	if err := chatPage(view{agent, p.options.Guests(agent.Name)}).Render(r.Context(), &body); err != nil {
		httpserver.WriteFault(w, err)
		return
	}

	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-cache")
	_, _ = w.Write(body.Bytes())
}
