package a2a

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// cards describe the agents: their cards, signed, and what else tells a caller where and how an agent is reached.
type cards struct {
	options *Options
	base    string // PublicURL without a slash at the end
	seen    changes
	log     *slog.Logger
}

// CardRel is the link relation from an address to its agent card (message contract, section 11).
const CardRel = "https://mentionable.dev/ns/rel/agent-card"

// Links are the discovery links of an agent that this protocol contributes.
func (d *cards) Links(agent exchange.AgentProfile) []exchange.Link {
	return []exchange.Link{{
		Rel: CardRel, Type: mimeJSON, Href: d.cardURL(agent),
	}}
}

// cardURL is the address of the agent's card, which is also a name of the agent.
func (d *cards) cardURL(agent exchange.AgentProfile) string {
	return d.base + "/.well-known/agent-card/" + url.PathEscape(agent.Name)
}

// endpoint is the URL of an agent's JSON-RPC interface; HTTP+JSON 1.0 is below it at /rest, 0.3 at /v1.
func (d *cards) endpoint(agent exchange.AgentProfile) string {
	return d.base + "/a2a/" + url.PathEscape(agent.Name)
}

// agentCard is /a2a/{agent}/.well-known/agent-card.json.
func (d *cards) agentCard(r *http.Request) ([]byte, error) {
	agent, known := d.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		return nil, noCard()
	}
	return d.agentCardJSON(r.Context(), agent, bareScopes(r.Header))
}

// defaultCard is /.well-known/agent-card.json, which names one agent an origin.
func (d *cards) defaultCard(r *http.Request) ([]byte, error) {
	if agent, known := d.defaultAgent(); known {
		return d.agentCardJSON(r.Context(), agent, bareScopes(r.Header))
	}
	return nil, noCard()
}

// defaultAgent is the one that the operator named, or the first.
func (d *cards) defaultAgent() (exchange.AgentProfile, bool) {
	if name := d.options.DefaultAgent(); name != "" {
		return d.options.Directory.Agent(name)
	}
	if agents := d.options.Directory.Agents(); len(agents) > 0 {
		return agents[0], true
	}
	return exchange.AgentProfile{}, false
}

// mentionableCard is /.well-known/agent-card/{agent}.
func (d *cards) mentionableCard(r *http.Request) ([]byte, error) {
	agent, known := d.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		return nil, noCard()
	}
	return d.mentionableJSON(r.Context(), agent)
}

func noCard() error { return fault.New(fault.NotFound, "no such agent here") }

// varied serves a card that is not the same for all programs.
func varied(card http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "User-Agent")
		card.ServeHTTP(w, r)
	})
}

// bareScopes reports whether a client reads the scopes of a card's security requirements as a bare list: the Go SDK (2.4)
// does, and refuses the whole card otherwise (decision 0053). Its programs are known by Go's own HTTP client.
func bareScopes(header http.Header) bool {
	return strings.HasPrefix(header.Get("User-Agent"), "Go-http-client/")
}

// cached serves a public document with a strong ETag. Browsers of any origin may read it, without credentials: the
// SDK's own handler reflects the origin and allows them.
func (d *cards) cached(document func(*http.Request) ([]byte, error)) http.Handler {
	return d.cachedAs(mimeJSON, document)
}

func (d *cards) cachedAs(mediaType string, document func(*http.Request) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", "*")

		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodOptions:
			header.Set("Access-Control-Allow-Methods", "GET, HEAD")
			header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, A2A-Version, A2A-Extensions") // SDKs send them with every request
			w.WriteHeader(http.StatusNoContent)
			return
		default:
			header.Set("Allow", "GET, HEAD, OPTIONS")
			http.Error(w, "cards are read with GET", http.StatusMethodNotAllowed)
			return
		}

		body, err := document(r)
		if err != nil {
			d.cardProblem(w, r, err)
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

		http.ServeContent(w, r, "", d.seen.since(name, tag), bytes.NewReader(body))
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

func (d *cards) cardProblem(w http.ResponseWriter, r *http.Request, err error) {
	if fault.Is(err, fault.NotFound) {
		http.Error(w, "no such agent here", http.StatusNotFound)
		return
	}
	d.log.ErrorContext(r.Context(), "agent card cannot be written", "error", err)
	http.Error(w, "internal error", http.StatusInternalServerError)
}

// catalog is /.well-known/api-catalog (RFC 9727): every agent with its card, as a link set (RFC 9264).
func (d *cards) catalog() ([]byte, error) {
	type target struct {
		Href string `json:"href"`
		Type string `json:"type,omitempty"`
	}

	type entry struct {
		Anchor   string   `json:"anchor"`
		Describe []target `json:"service-desc"`
		Metadata []target `json:"service-meta"`
	}

	entries := []entry{}
	for _, agent := range d.options.Directory.Agents() {
		endpoint := d.endpoint(agent)
		entries = append(entries, entry{
			Anchor:   endpoint,
			Describe: []target{{endpoint + "/.well-known/agent-card.json", mimeJSON}},
			Metadata: []target{{d.cardURL(agent), mimeJSON}, {d.resourceMetadataURL(agent), mimeJSON}},
		})
	}

	return json.MarshalIndent(map[string]any{"linkset": entries}, "", "  ")
}
