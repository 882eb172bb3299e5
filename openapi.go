package inbox

import (
	"net/http"
	"regexp"
	"strings"

	"inbox/adapters/chat"
	"inbox/console"
	"inbox/internal/httpserver"
	"inbox/internal/openapi"
)

// withDescription adds the OpenAPI document of all routes below /v1 and /api. It is the same on every server but for its
// address.
func (s *Server) withDescription(routes []httpserver.Route) ([]httpserver.Route, error) {
	document, err := describe(s.config.PublicURL, routes)
	if err != nil {
		return nil, err
	}
	serve := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("Cache-Control", "public, max-age=300")
		header.Set("Access-Control-Allow-Origin", "*") // tools in browsers read it; it says nothing about anybody
		header.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(document)
	})
	return append(routes, httpserver.Route{Method: http.MethodGet, Pattern: "/openapi.json", Handler: serve},
		httpserver.Route{Method: http.MethodGet, Pattern: "/api/openapi.json", Handler: serve}), nil
}

func describe(server string, routes []httpserver.Route) ([]byte, error) {
	known := operations()
	var list []openapi.Operation
	for _, route := range routes {
		if !described(route) {
			continue
		}
		operation, is := known[route.Method+" "+route.Pattern]
		if !is { // a test finds it before anybody else
			operation = openapi.Operation{Tag: "other", Summary: "Not described", Security: openapi.Bearer, Response: map[string]any{}}
		}
		operation.Method, operation.Path = route.Method, route.Pattern
		list = append(list, operation)
	}
	return openapi.Document(openapi.Info{
		Title: "inbox", Version: Version, Server: server, Error: httpserver.ErrorBody{},
		Description: "What programs call below /v1 and the operator's own below /api. A2A, ActivityPub and mail are described by their specifications.",
	}, list)
}

func described(route httpserver.Route) bool {
	return route.Method != http.MethodOptions && (strings.HasPrefix(route.Pattern, "/v1/") || strings.HasPrefix(route.Pattern, "/api/"))
}

// free is a document of the agent runtime contract.
type free = map[string]any

// operations describe the routes, by method and pattern.
func operations() map[string]openapi.Operation {
	known := map[string]openapi.Operation{}
	for _, operation := range chat.Operations() {
		known[operation.Method+" "+operation.Path] = operation
	}
	shapes := console.Shapes()
	for key, about := range describedRoutes {
		operation := openapi.Operation{Tag: tagOf(key), Summary: about.summary, Query: about.query, Request: about.request, Response: about.response, Status: about.status, Security: openapi.Bearer}
		if shape, is := shapes[key]; is {
			operation.Response = shape
		}
		operation.Stream = strings.HasSuffix(key, "/events")
		if _, is := about.request.(string); is {
			operation.Media = "text/csv"
		}
		known[key] = operation
	}
	return known
}

var secondWord = regexp.MustCompile(`^\w+ /(?:api/v1|v1)/([a-z-]+)`)

func tagOf(key string) string {
	if strings.Contains(key, " /api/") {
		return "operator"
	}
	if match := secondWord.FindStringSubmatch(key); match != nil {
		return match[1]
	}
	return "other"
}

// about is what is known of a route beside its address.
type about struct {
	summary           string
	query             []string
	request, response any
	status            int
}

type reasonBody struct {
	Reason string `json:"reason,omitempty"`
}

type textBody struct {
	Text string `json:"text"`
	MIME string `json:"mime,omitempty"`
}

type entryBody struct {
	Target string `json:"target"`
	Effect string `json:"effect,omitempty"`
	Reason string `json:"reason,omitempty"`
}
