package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"time"

	"inbox/identity"
	"inbox/internal/httpserver"
)

// KeysFunc returns the keys that this server vouches with; *Keyring has it as Public.
type KeysFunc func(ctx context.Context) (active, previous []identity.PublicKey, err error)

// keySeconds is how long peers may keep a key document. It is short: a new key signs at once, and a peer that asks for an
// unknown key must not be answered by an old copy.
const keySeconds = "60"

// keyDocument builds one of the three documents of our keys.
type keyDocument func(active, previous []identity.PublicKey) []byte

// keyRoutes are the documents by which others check what we signed (message contract, section 10).
func (s *Server) keyRoutes() []httpserver.Route {
	if s.options.Keys == nil {
		return nil
	}

	issuer := s.issuer
	documents := []struct {
		pattern, mediaType string
		build              keyDocument
	}{
		{"/.well-known/jwks.json", "application/jwk-set+json", func(active, previous []identity.PublicKey) []byte {
			return identity.KeySet(slices.Concat(active, previous))
		}},
		{"/.well-known/did.json", "application/did+json", func(active, previous []identity.PublicKey) []byte {
			return identity.DIDDocument(issuer, slices.Concat(active, previous))
		}},
		{"/.well-known/adapter-card", "application/json", func(active, previous []identity.PublicKey) []byte {
			return identity.ConnectorCard(issuer, s.options.Callbacks, active, previous)
		}},
	}

	var routes []httpserver.Route
	for _, d := range documents {
		routes = append(routes, httpserver.Route{Pattern: d.pattern, Handler: open(s.keys(d.mediaType, d.build))})
	}

	return routes
}

// keys serves a key document with a strong ETag, to scripts of any web page.
func (s *Server) keys(mediaType string, build keyDocument) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodOptions:
			w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD")
			w.WriteHeader(http.StatusNoContent)
			return
		default:
			w.Header().Set("Allow", "GET, HEAD, OPTIONS")
			refuse(w, http.StatusMethodNotAllowed, "keys are read with GET")
			return
		}

		active, previous, err := s.options.Keys(r.Context())
		if err != nil {
			s.options.Logger.ErrorContext(r.Context(), "key document cannot be written", "error", err)
			w.Header().Set("Retry-After", "30")
			refuse(w, http.StatusServiceUnavailable, "the keys cannot be read right now")
			return
		}

		body := build(active, previous)
		sum := sha256.Sum256(body)
		w.Header().Set("Etag", `"`+hex.EncodeToString(sum[:16])+`"`)
		w.Header().Set("Cache-Control", "public, max-age="+keySeconds)
		w.Header().Set("Content-Type", mediaType)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}
}
