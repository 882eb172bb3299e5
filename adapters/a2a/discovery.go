package a2a

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// CardRel is the link relation from an address to its agent card (message contract, section 11).
const CardRel = "https://mentionable.dev/ns/rel/agent-card"

// Links are the discovery links of an agent that this protocol contributes.
func (a *Adapter) Links(agent exchange.AgentProfile) []exchange.Link {
	return []exchange.Link{{
		Rel: CardRel, Type: mimeJSON, Href: a.cardURL(agent),
	}}
}

// cardURL is the address of the agent's card, which is also a name of the agent.
func (a *Adapter) cardURL(agent exchange.AgentProfile) string {
	return a.base + "/.well-known/agent-card/" + url.PathEscape(agent.Name)
}

// agentCard is /a2a/{agent}/.well-known/agent-card.json.
func (a *Adapter) agentCard(r *http.Request) ([]byte, error) {
	agent, known := a.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		return nil, noCard()
	}
	return a.agentCardJSON(r.Context(), agent, bareScopes(r.Header))
}

// defaultCard is /.well-known/agent-card.json, which names one agent an origin.
func (a *Adapter) defaultCard(r *http.Request) ([]byte, error) {
	if agent, known := a.defaultAgent(); known {
		return a.agentCardJSON(r.Context(), agent, bareScopes(r.Header))
	}
	return nil, noCard()
}

// defaultAgent is the one that the operator named, or the first.
func (a *Adapter) defaultAgent() (exchange.AgentProfile, bool) {
	if a.options.DefaultAgent != "" {
		return a.options.Directory.Agent(a.options.DefaultAgent)
	}
	if agents := a.options.Directory.Agents(); len(agents) > 0 {
		return agents[0], true
	}
	return exchange.AgentProfile{}, false
}

// mentionableCard is /.well-known/agent-card/{agent}.
func (a *Adapter) mentionableCard(r *http.Request) ([]byte, error) {
	agent, known := a.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		return nil, noCard()
	}
	return a.mentionableJSON(r.Context(), agent)
}

func noCard() error { return fault.New(fault.NotFound, "no such agent here") }

// cached serves a public document with a strong ETag. Browsers of any origin may read it, without credentials: the
// SDK's own handler reflects the origin and allows them.
func (a *Adapter) cached(document func(*http.Request) ([]byte, error)) http.Handler {
	return a.cachedAs(mimeJSON, document)
}

func (a *Adapter) cachedAs(mediaType string, document func(*http.Request) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", "*")
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodOptions:
			header.Set("Access-Control-Allow-Methods", "GET, HEAD")
			header.Set("Access-Control-Allow-Headers", "A2A-Version, A2A-Extensions")
			w.WriteHeader(http.StatusNoContent)
			return
		default:
			header.Set("Allow", "GET, HEAD, OPTIONS")
			http.Error(w, "cards are read with GET", http.StatusMethodNotAllowed)
			return
		}
		body, err := document(r)
		if err != nil {
			a.cardProblem(w, r, err)
			return
		}
		sum := sha256.Sum256(body)
		tag := `"` + hex.EncodeToString(sum[:16]) + `"`
		header.Set("Etag", tag)
		header.Set("Cache-Control", "public, max-age=300")
		header.Set("Content-Type", mediaType)
		name := r.URL.Path
		if bareScopes(r.Header) {
			name += " bare"
		}
		http.ServeContent(w, r, "", a.seen.since(name, tag), bytes.NewReader(body))
	})
}

// changes remembers since when each document is what it is: there is no other time of its last change.
type changes struct {
	mu    sync.Mutex
	known map[string]change
}

type change struct {
	tag string
	at  time.Time
}

// maxChanges bounds the documents that are remembered; an agent has ten.
const maxChanges = 10_000

func (c *changes) since(path, tag string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, has := c.known[path]; has && known.tag == tag {
		return known.at
	}
	if c.known == nil || len(c.known) >= maxChanges {
		c.known = map[string]change{}
	}
	now := time.Now()
	c.known[path] = change{tag, now}
	return now
}

func (a *Adapter) cardProblem(w http.ResponseWriter, r *http.Request, err error) {
	if fault.Is(err, fault.NotFound) {
		http.Error(w, "no such agent here", http.StatusNotFound)
		return
	}
	a.log.ErrorContext(r.Context(), "agent card cannot be written", "error", err)
	http.Error(w, "internal error", http.StatusInternalServerError)
}
