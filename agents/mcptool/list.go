package mcptool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/internal/clip"
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
	claims  map[string][]string // canonical name → names at the server
	idle    []Unmatched         // patterns of the operator that matched none so far
	refused int                 // left out because of the operator's patterns
	broken  int                 // left out because they cannot be declared
	wrong   []tool.Rejection    // the first of these
	over    bool
}

// list reads pages until it has as many tools as the operator allows. A server without end is stopped there.
func (s *server) list(ctx context.Context, c *connection) (*listing, error) {
	found := &listing{byName: map[string]remoteTool{}, claims: map[string][]string{}, idle: s.settings.patterns()}
	seen := map[string]bool{}
	cursor := ""
	for range maxPages {
		page, err := c.session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, fmt.Errorf("list tools: %w", withoutAddress(err))
		}

		for _, offered := range page.Tools {
			if len(found.tools) >= s.options.MaxTools {
				found.over, found.idle = true, nil // further tools may match
				return s.settled(found), nil
			}
			if !seen[offered.Name] {
				seen[offered.Name] = true
				s.add(found, offered)
			}
		}

		if page.NextCursor == "" || page.NextCursor == cursor {
			return s.settled(found), nil
		}

		cursor = page.NextCursor
	}

	return nil, errors.New("list tools: the server has more pages than a list may have")
}

// settled sorts a listing and leaves out every tool that does not have its name for itself. Which of them a name means must not depend on
// the order of the list, nor change when the server adds or removes one of them.
func (s *server) settled(l *listing) *listing {
	told := map[string]bool{}
	l.tools = slices.DeleteFunc(l.tools, func(known remoteTool) bool {
		name := known.declaration.Name()
		if claims := l.claims[name]; len(claims) > 1 {
			if l.broken++; !told[name] && len(l.wrong) < maxRejections {
				l.wrong = append(l.wrong, tool.Rejection{Name: name, Reason: ambiguous(name, claims)})
			}
			told[name] = true
			return true
		}
		l.byName[name] = known
		return false
	})
	slices.SortFunc(l.tools, func(a, b remoteTool) int { return cmp.Compare(a.declaration.Name(), b.declaration.Name()) })
	return l
}

// ambiguous says that a canonical name has several tools, and how to have one of them. A pattern also matches the name that agents see, so the
// one that has this name at the server cannot be left out without the others, and stays.
func ambiguous(name string, claims []string) string {
	_, own, _ := strings.Cut(name, "/")
	slices.Sort(claims)
	stays := max(slices.Index(claims, own), 0)
	others := slices.Delete(slices.Clone(claims), stays, stays+1)
	patterns := make([]string, len(others))
	for i, remote := range others {
		patterns[i] = globCharacters.ReplaceAllString(remote, `\$0`)
	}

	all, rest := "both", quoted(claims[:1])+" and "+quoted(claims[1:])
	if len(claims) > 2 {
		all, rest = "all", quoted(claims)
	}
	return fmt.Sprintf("the tools %s of the server are %s %s; to have only %s, write forbidden = [%s] in its [[agents.mcp]]",
		rest, all, name, quoted(claims[stays:stays+1]), quoted(patterns))
}

var globCharacters = regexp.MustCompile(`[*?\[\\]`)

// quoted writes the first of the names that a server uses.
func quoted(remotes []string) string {
	var names []string
	for _, remote := range remotes[:min(len(remotes), 4)] {
		names = append(names, strconv.Quote(plain(remote)))
	}
	if len(remotes) > 4 {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

func (l *listing) names() []string {
	names := make([]string, 0, len(l.tools))
	for _, known := range l.tools {
		names = append(names, known.declaration.Name())
	}
	return names
}

func (s *server) add(found *listing, offered *mcp.Tool) {
	if len(offered.Name) > maxRemoteName || offered.Name == "" {
		s.reject(found, offered.Name, errors.New("its name is empty or over 128 bytes"))
		return
	}
	found.idle = slices.DeleteFunc(found.idle, func(pattern Unmatched) bool {
		return s.settings.means(pattern, offered.Name, slug(offered.Name))
	})
	if !s.settings.offered(offered.Name, slug(offered.Name)) {
		found.refused++
		return
	}

	name := s.settings.Name + "/" + slug(offered.Name)
	found.claims[name] = append(found.claims[name], offered.Name)
	declaration, err := s.declare(offered, name)
	if err != nil {
		s.reject(found, offered.Name, err)
		return
	}
	found.tools = append(found.tools, remoteTool{offered.Name, declaration})
}

// maxRejections is how many tools of a server are told that it declares wrongly.
const maxRejections = 16

func (s *server) reject(found *listing, remote string, reason error) {
	if found.broken++; len(found.wrong) < maxRejections {
		name := s.settings.Name + "/" + clip.Bytes(plain(remote), maxRemoteName)
		found.wrong = append(found.wrong, tool.Rejection{Name: name, Reason: reason.Error()})
	}
}

// declare writes the declaration of a tool in the form of agents/runtime/tool. Nothing but schema, texts and hints is taken
// from the server; everything that decides is the operator's.
func (s *server) declare(offered *mcp.Tool, name string) (*tool.Declaration, error) {
	parameters, err := schema(offered.InputSchema)
	if err != nil {
		return nil, err
	}

	declared := map[string]any{
		"name": name, "source": s.settings.Name, "executor": tool.ExecutorHost, "scope": tool.ScopeRun,
		"description": description(offered), "parameters": parameters,
		"action_policy":  s.settings.action(offered.Name, slug(offered.Name)),
		"untrusted_text": true,
		"mcp":            map[string]any{"server": s.settings.Name, "tool": offered.Name},
	}

	if hints := offered.Annotations; hints != nil {
		declared["mutating"] = !hints.ReadOnlyHint && (hints.DestructiveHint == nil || *hints.DestructiveHint)
	}

	if s.settings.restricts(s.settings.AtMostOnce, offered.Name, slug(offered.Name)) {
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
)

var (
	wordBoundary = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	notSlug      = regexp.MustCompile(`[^a-z0-9_-]+`)
)

// slug writes a tool's name with the letters that declarations allow: "getWeather" becomes "get_weather". It depends on that name only. Names
// of other alphabets, and long ones, get a hash in place of the letters that are lost.
func slug(remote string) string {
	words := wordBoundary.ReplaceAllString(remote, "${1}_$2")
	name := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(words), "_"), "_-")
	if name == "" || name[0] < 'a' || name[0] > 'z' {
		name = strings.TrimSuffix("tool_"+name, "_")
	}
	if len(name) <= maxSlug && strings.IndexFunc(remote, func(char rune) bool { return char > unicode.MaxASCII }) < 0 {
		return name
	}

	sum := sha256.Sum256([]byte(remote))
	suffix := "_" + hex.EncodeToString(sum[:4])
	return name[:min(len(name), maxSlug-len(suffix))] + suffix
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

// restricts reports whether a pattern of a list that restricts tools means a tool. Such a pattern may have the server's name before it, as
// canonical names and names for models have it: otherwise "notes__add_note" would remove an approval without a word.
func (s Server) restricts(patterns []string, names ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		forms := []string{pattern}
		for _, separator := range []string{"/", "__"} {
			if rest, is := strings.CutPrefix(pattern, s.Name+separator); is {
				forms = append(forms, rest)
			}
		}
		return matches(forms, names...)
	})
}

// Unmatched is a pattern of a Server that matches none of its tools, so it has no effect.
type Unmatched struct {
	Setting string // tools, preview, forbidden or at_most_once
	Pattern string
}

// patterns returns all patterns of the settings.
func (s Server) patterns() (all []Unmatched) {
	lists := s.lists()
	for _, key := range slices.Sorted(maps.Keys(lists)) {
		for _, pattern := range lists[key] {
			all = append(all, Unmatched{key, pattern})
		}
	}
	return all
}

// means reports whether one pattern means a tool.
func (s Server) means(pattern Unmatched, names ...string) bool {
	if pattern.Setting == "tools" {
		return matches([]string{pattern.Pattern}, names...)
	}
	return s.restricts([]string{pattern.Pattern}, names...)
}

// offered reports whether the operator lets agents have the tool at all.
func (s Server) offered(names ...string) bool {
	return (len(s.Tools) == 0 || matches(s.Tools, names...)) && !s.restricts(s.Forbidden, names...)
}

func (s Server) action(names ...string) string {
	if s.restricts(s.Preview, names...) {
		return actionPreview
	}
	return actionDirect
}
