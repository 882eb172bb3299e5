package mcptool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/internal/clip"
	"inbox/internal/ordered"
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

// listing is the tools of a server, by canonical name and in that order: the same list makes the same text to a model,
// whatever order the server has.
type listing struct {
	tools   []remoteTool
	byName  map[string]remoteTool
	refused int              // left out because of the operator's patterns
	broken  int              // left out because they cannot be declared
	wrong   []tool.Rejection // the first of these
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
	ordered.Sort(l.tools, func(a, b remoteTool) int { return cmp.Compare(a.declaration.Name(), b.declaration.Name()) })
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
		s.reject(found, offered, errors.New("its name is empty or over 128 bytes"))
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
		s.reject(found, offered, err)
		return
	}

	known := remoteTool{offered.Name, declaration}
	found.tools = append(found.tools, known)
	found.byName[declaration.Name()] = known
}

// maxRejections is how many tools of a server are told that it declares wrongly.
const maxRejections = 16

func (s *server) reject(found *listing, offered *mcp.Tool, reason error) {
	if found.broken++; len(found.wrong) < maxRejections {
		name := s.settings.Name + "/" + clip.Bytes(plain(offered.Name), maxRemoteName)
		found.wrong = append(found.wrong, tool.Rejection{Name: name, Reason: reason.Error()})
	}
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
		if text := clip.Bytes(plain(text), maxDescriptionBytes); text != "" {
			return text
		}
	}
	return "A tool without a name."
}

const (
	maxRemoteName = 128 // bytes of a tool's name at its server, the limit of the MCP specification
	maxSlug       = 64
	maxSafeName   = 64 // the shortest limit among model providers
)

var (
	wordBoundary = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	notSlug      = regexp.MustCompile(`[^a-z0-9_-]+`)
)

// slug writes a tool's name with the letters that declarations allow: "getWeather" becomes "get_weather".
func slug(remote string) string {
	words := wordBoundary.ReplaceAllString(remote, "${1}_$2")
	name := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(words), "_"), "_-")
	if name == "" || name[0] < 'a' || name[0] > 'z' {
		name = strings.TrimSuffix("tool_"+name, "_")
	}
	return shorten(name, maxSlug)
}

// shorten keeps names of equal beginning apart.
func shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	return suffixed(name, name, limit)
}

// suffixed returns a name that depends on the original alone, whatever other tools there are.
func suffixed(name, original string, limit int) string {
	sum := sha256.Sum256([]byte(original))
	suffix := "_" + hex.EncodeToString(sum[:4])
	if len(name)+len(suffix) > limit {
		name = name[:limit-len(suffix)]
	}
	return name + suffix
}

// naming returns the tools of one server names that differ.
type naming struct {
	server string
	taken  map[string]bool // slugs
	safe   map[string]bool // names for model providers
}

func newNaming(server string) *naming {
	return &naming{server: server, taken: map[string]bool{}, safe: map[string]bool{}}
}

// canonical returns the name "server/tool".
func (n *naming) canonical(remote string) string {
	name := slug(remote)
	if n.taken[name] {
		name = suffixed(name, remote, maxSlug)
	}
	n.taken[name] = true
	return n.server + "/" + name
}

// providerSafe returns the name for model providers.
func (n *naming) providerSafe(canonical string) string {
	name := shorten(tool.ProviderSafeName(canonical), maxSafeName)
	if n.safe[name] {
		name = suffixed(name, canonical, maxSafeName)
	}
	n.safe[name] = true
	return name
}

// Values of action_policy in a declaration (agent runtime contract, section 4.9).
const (
	actionDirect  = "direct"
	actionPreview = "preview"
)

// matches reports whether a pattern of the operator means a tool. Both names count, the server's and ours, so that a
// server cannot slip past a pattern by writing a name in another way.
func matches(patterns []string, names ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			matched, _ := path.Match(pattern, name) // New checked the pattern
			return matched
		})
	})
}

// offered reports whether the operator lets agents have the tool at all.
func (s Server) offered(names ...string) bool {
	return (len(s.Tools) == 0 || matches(s.Tools, names...)) && !matches(s.Forbidden, names...)
}

func (s Server) action(names ...string) string {
	if matches(s.Preview, names...) {
		return actionPreview
	}
	return actionDirect
}
