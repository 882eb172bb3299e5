package chat

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // for the script and its words
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"inbox/exchange"
	"inbox/internal/catalog"
	"inbox/internal/design"
	"inbox/internal/httpserver"
)

//go:generate go tool -modfile=../../tools/thirdparty/go.mod templ generate -path . -log-level warn

//go:embed web/chat.js
var scriptSource string

// scriptWords are the German texts of the script.
//
//go:embed web/de.json
var scriptWords []byte

// script is the source with the tokens of the design, its words in other languages and the limits of files, all as literals.
type script struct {
	source func() string // everything but the limits

	mu   sync.Mutex
	made scriptLimits
	text []byte
	tag  string
}

// scriptLimits are what the script lets people attach to one message: the files' number, and their bytes together.
type scriptLimits struct {
	Files int   `json:"files"`
	Guest int64 `json:"guest"` // bytes of a caller without a token
	Token int64 `json:"token"`
}

func newScript() *script {
	return &script{source: sync.OnceValue(func() string {
		tokens, err := json.Marshal(design.ShadowTokens())
		if err != nil {
			panic("chat: " + err.Error()) // a text
		}
		words, err := json.Marshal(map[string]json.RawMessage{"de": scriptWords})
		if err != nil {
			panic("chat: translations of the script: " + err.Error()) // the file is part of the program
		}
		return strings.NewReplacer("__TOKENS__", string(tokens), "__WORDS__", string(words)).Replace(scriptSource)
	})}
}

// with returns the script with these limits, and its entity tag.
func (s *script) with(limits scriptLimits) ([]byte, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text == nil || s.made != limits {
		encoded, err := json.Marshal(limits)
		if err != nil {
			panic("chat: " + err.Error()) // numbers
		}
		s.made, s.text = limits, []byte(strings.Replace(s.source(), "__LIMITS__", string(encoded), 1))
		sum := sha256.Sum256(s.text)
		s.tag = `"` + hex.EncodeToString(sum[:8]) + `"`
	}
	return s.text, s.tag
}

func (p *pages) serveScript(w http.ResponseWriter, r *http.Request) {
	text, tag := p.script.with(scriptLimits{maxAttachments, p.options.mostFiles(true), p.options.mostFiles(false)})
	header := w.Header()
	header.Set("Content-Type", "text/javascript; charset=utf-8")
	header.Set("Cache-Control", "public, max-age=300")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin") // pages of other sites embed it
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("ETag", tag)

	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(text)
}

// pages serves the page of each agent.
type pages struct {
	*site
	script *script
}

// Opening is what stands in a chat before anything was said.
type Opening struct {
	Greeting    string
	Suggestions Suggestions // questions to begin with
}

// Suggestions are questions to begin with.
type Suggestions []string

// list is their form in an attribute of the script.
func (s Suggestions) list() string {
	encoded, err := json.Marshal([]string(s))
	if err != nil {
		panic("chat: " + err.Error()) // texts
	}
	return string(encoded)
}

// view is what the page shows.
type view struct {
	exchange.AgentProfile
	Opening
	Label string // the agent's name as people know it
	Open  bool   // for guests
}

func (p *pages) servePage(w http.ResponseWriter, r *http.Request) {
	r = catalog.ForReader(r)
	agent, known := p.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		httpserver.WriteFault(w, noAgent())
		return
	}

	shown := view{AgentProfile: agent, Opening: p.options.Opening(agent.Name), Label: cmp.Or(strings.TrimSpace(agent.DisplayName), agent.Name), Open: p.options.Guests(agent.Name)}
	head := design.Head{
		Title: texts.Text(r.Context(), "Chat with {agent}", "agent", shown.Label), Lang: catalog.Language(r.Context()), Class: "public",
		Description: agent.Summary, Canonical: p.base + "/@" + agent.Name + "/chat", OpenGraph: design.OpenGraph{Type: "website", Site: p.options.Domain},
	}
	head.OpenGraph.Image = design.Picture{
		Address: p.base + design.AvatarAddress(agent.Name, agent.Address), Alt: texts.Text(r.Context(), "Picture of {agent}", "agent", shown.Label), Size: design.PictureSize,
	}
	if err := design.Send(w, r, chatPage(head, shown), design.Answer{Status: http.StatusOK, Keep: "no-cache"}); err != nil {
		httpserver.WriteFault(w, err)
	}
}
