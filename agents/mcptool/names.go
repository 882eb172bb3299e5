package mcptool

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"inbox/agents/runtime/tool"
)

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
