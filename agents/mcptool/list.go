package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

const (
	maxPages            = 64
	maxSchemaBytes      = 64 << 10
	maxSchemaDepth      = 32
	maxDescriptionBytes = 4 << 10
)

// remoteTool is a tool as we know it.
type remoteTool struct {
	remote      string // its name at the server
	declaration *tool.Declaration
}

// listing is the tools of a server, by canonical name and in that order: the same list gives the same text to a model,
// whatever order the server has.
type listing struct {
	tools   []remoteTool
	byName  map[string]remoteTool
	refused int // left out because of the operator's patterns
	broken  int // left out because they cannot be declared
	over    bool
}

// list reads pages until it has as many tools as the operator allows. A server without end is stopped there.
func (s *server) list(ctx context.Context, c *connection) (*listing, error) {
	found := &listing{byName: map[string]remoteTool{}}
	names := newNaming(s.settings.Name)
	seen := map[string]bool{}
	cursor := ""
	for range maxPages {
		page, err := c.session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, fmt.Errorf("list tools: %w", withoutAddress(err))
		}
		for _, offered := range page.Tools {
			if len(found.tools) >= s.options.MaxTools {
				found.over = true
				return found.sorted(), nil
			}
			if !seen[offered.Name] {
				seen[offered.Name] = true
				s.add(found, offered, names)
			}
		}
		if page.NextCursor == "" || page.NextCursor == cursor {
			return found.sorted(), nil
		}
		cursor = page.NextCursor
	}
	return nil, errors.New("list tools: the server has more pages than a list may have")
}

func (l *listing) sorted() *listing {
	slices.SortFunc(l.tools, func(a, b remoteTool) int { return cmp.Compare(a.declaration.Name(), b.declaration.Name()) })
	return l
}

func (l *listing) names() []string {
	names := make([]string, 0, len(l.tools))
	for _, known := range l.tools {
		names = append(names, known.declaration.Name())
	}
	return names
}

func (s *server) add(found *listing, offered *mcp.Tool, names *naming) {
	if len(offered.Name) > maxRemoteName || offered.Name == "" {
		found.broken++
		return
	}
	if !s.settings.offered(offered.Name, slug(offered.Name)) {
		found.refused++
		return
	}
	declaration, err := s.declare(offered, names)
	if err == nil && found.byName[declaration.Name()].declaration != nil {
		err = errors.New("name is taken") // a policy must never be about another tool than the call
	}
	if err != nil {
		found.broken++
		return
	}
	known := remoteTool{offered.Name, declaration}
	found.tools = append(found.tools, known)
	found.byName[declaration.Name()] = known
}

// declare writes the declaration of a tool in the form of agents/runtime/tool. Nothing but schema, texts and hints is taken
// from the server; everything that decides is the operator's.
func (s *server) declare(offered *mcp.Tool, names *naming) (*tool.Declaration, error) {
	parameters, err := schema(offered.InputSchema)
	if err != nil {
		return nil, err
	}
	name := names.canonical(offered.Name)
	declared := map[string]any{
		"name": name, "source": s.settings.Name, "executor": tool.ExecutorHost, "scope": tool.ScopeRun,
		"description": description(offered), "parameters": parameters,
		"provider_safe_name": names.providerSafe(name),
		"action_policy":      s.settings.action(offered.Name, slug(offered.Name)),
		"untrusted_text":     true,
		"mcp":                map[string]any{"server": s.settings.Name, "tool": offered.Name},
	}
	if hints := offered.Annotations; hints != nil {
		declared["mutating"] = !hints.ReadOnlyHint && (hints.DestructiveHint == nil || *hints.DestructiveHint)
	}
	if matches(s.settings.AtMostOnce, offered.Name, slug(offered.Name)) {
		declared["at_most_once"] = true
		declared["runtime"] = map[string]any{"duplicate_policy": "at_most_once"}
	}
	return tool.NormalizeServer(declared)
}

func schema(offered any) (map[string]any, error) {
	text, err := json.Marshal(offered)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	given, err := value.Decode(text, value.Limits{Bytes: maxSchemaBytes, Depth: maxSchemaDepth})
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	object, ok := given.(map[string]any)
	if !ok || object["type"] != "object" {
		return nil, errors.New("read schema: it is not of type object")
	}
	return object, nil
}

// description falls back to the titles, for a tool without a description cannot be declared.
func description(offered *mcp.Tool) string {
	candidates := []string{offered.Description, offered.Title}
	if offered.Annotations != nil {
		candidates = append(candidates, offered.Annotations.Title)
	}
	for _, text := range append(candidates, offered.Name) {
		if text := cut(plain(text), maxDescriptionBytes); text != "" {
			return text
		}
	}
	return "A tool without a name."
}
