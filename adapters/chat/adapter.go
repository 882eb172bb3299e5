// Package chat makes agents reachable by chat clients over HTTP: JSON-RPC chat (agent runtime contract, section 6.5),
// plain REST chat, an API in the form of OpenAI's, and a chat for web pages. A run is a turn of the engine and a session
// is a thread; nothing is kept here, streams are read from the rows of the turn's events, so that any node resumes them.
// Messages say received_via "a2a" (message contract, section 1). The package does not run agents, and the contract of the
// frames itself is in adapters/chat/contract.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// Adapter is the face of the chat: what a node starts, serves and calls. Its parts own their state, and each knows only
// those that it needs. It is safe for concurrent use and starts no goroutines of its own.
type Adapter struct {
	*site
	endpoints *endpoints
	rest      *restAPI
	rpc       *rpcAPI
	openAI    *openAI
	pages     *pages
}

// site is what every part knows: the options, our own address, and the agents.
type site struct {
	options Options
	base    string // PublicURL without a slash at the end
}

// agent finds an agent by its name, or by the name's form in paths.
func (s *site) agent(name string) (exchange.AgentProfile, bool) {
	if agent, known := s.options.Directory.Agent(name); known {
		return agent, true
	}

	slug := contract.Slug(name)
	for _, agent := range s.options.Directory.Agents() {
		if contract.Slug(agent.Name) == slug && slug != "" {
			return agent, true
		}
	}
	return exchange.AgentProfile{}, false
}

// New makes an Adapter; its error names what is missing.
func New(options Options) (*Adapter, error) {
	if options.Domain == "" {
		return nil, errors.New("chat: Domain is empty")
	}
	if options.Receiver == nil || options.Directory == nil || options.Turns == nil || options.Runs == nil || options.Tokens == nil || options.Memory == nil {
		return nil, errors.New("chat: a collaborator is missing")
	}

	options.defaults()
	s := &site{options, strings.TrimSuffix(options.PublicURL, "/")}

	access := &access{s, bearer.NewCache(options.Tokens), make(chan struct{}, atATime)}
	sessions := &sessions{s, access}
	tools := &clientTools{s, sessions}
	runs := &runs{site: s, access: access, sessions: sessions, tools: tools}
	messages := &messages{site: s, access: access, sessions: sessions, tools: tools, runs: runs}
	renderer := &renderer{site: s, tools: tools}

	return &Adapter{
		site: s, endpoints: &endpoints{s}, pages: &pages{s, newScript()},
		rest:   &restAPI{site: s, access: access, sessions: sessions, messages: messages, runs: runs, tools: tools, renderer: renderer},
		rpc:    &rpcAPI{site: s, access: access, messages: messages, runs: runs, tools: tools, renderer: renderer},
		openAI: &openAI{site: s, access: access, messages: messages, runs: runs, tools: tools, renderer: renderer},
	}, nil
}

// referencePath stands before the paths of the reference runtime (agent runtime contract, section 6.5).
const referencePath = "/agents-api"

// Routes are the endpoints and the chat of web pages: the script for any page, and a page of its own for each agent.
func (a *Adapter) Routes() []httpserver.Route {
	const get, post = http.MethodGet, http.MethodPost
	rpc, chat := a.endpoints.handle("jsonrpc", a.rpc.serveRPC), a.endpoints.handle("rest", a.rest.serveChat)
	api := []httpserver.Route{
		{Method: post, Pattern: "/v1/chat/completions", Handler: a.endpoints.handle(surfaceOpenAI, a.openAI.serveCompletion)},
		{Method: post, Pattern: "/v1/responses", Handler: a.endpoints.handle(surfaceOpenAI, a.openAI.serveResponse)},
		{Method: get, Pattern: "/v1/responses/{response}", Handler: a.endpoints.handle(surfaceOpenAI, a.openAI.serveStoredResponse)},
		{Method: get, Pattern: "/v1/models", Handler: a.endpoints.handle(surfaceOpenAI, a.openAI.serveModels)},
		{Method: get, Pattern: "/v1/models/{model}", Handler: a.endpoints.handle(surfaceOpenAI, a.openAI.serveModel)},
		{Method: post, Pattern: "/v1/agent/{agent}", Handler: rpc},
		{Method: post, Pattern: "/v1/chat", Handler: chat},
		{Method: post, Pattern: referencePath + "/v1/agent/{agent}", Handler: rpc}, // clients of the reference know these paths
		{Method: post, Pattern: referencePath + "/v1/chat", Handler: chat},
		{Method: get, Pattern: "/v1/chat", Handler: a.endpoints.handle("rest", a.rest.serveSession)},
		{Method: http.MethodDelete, Pattern: "/v1/chat", Handler: a.endpoints.handle("rest", a.rest.serveForget)},
		{Method: post, Pattern: "/v1/chat/stop", Handler: a.endpoints.handle("rest", a.rest.serveStop)},
	}

	return append([]httpserver.Route{
		{Method: get, Pattern: "/chat.js", Handler: http.HandlerFunc(a.pages.serveScript)},
		{Method: get, Pattern: "/@{agent}/chat", Handler: http.HandlerFunc(a.pages.servePage)},
	}, a.endpoints.withPreflight(api)...)
}

// ChannelName is the name of the channel.
const ChannelName = "chat"

// Module returns the channel as a node runs it.
func (a *Adapter) Module() exchange.Module {
	return exchange.Module{Name: ChannelName, ReceivedVia: normalized.ViaA2A, Channel: a, Routes: a.Routes()}
}

var _ exchange.Awaited = (*Adapter)(nil)

// Plan has no destinations: the client fetches its answer.
func (*Adapter) Plan(context.Context, exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{}, nil
}

// Deliver is never asked, because Plan names no destination.
func (*Adapter) Deliver(context.Context, exchange.Delivery) (exchange.DeliveryReceipt, error) {
	return exchange.DeliveryReceipt{}, fault.GiveUp("answers of a chat are fetched by the client", nil)
}

// Awaits reports that the asker looks at the page, or holds the request open.
func (*Adapter) Awaits(json.RawMessage) bool { return true }
