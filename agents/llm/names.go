package llm

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"inbox/agents/runtime/tool"
)

// maxNameBytes is the longest name of a tool that both APIs take.
const maxNameBytes = 64

// toolNames translates between the names of declarations and those that a model may use.
type toolNames struct {
	set  tool.Declarations
	long map[string]string // shortened name → safe name
}

func newToolNames(set tool.Declarations) toolNames {
	names := toolNames{set: set}
	for _, declaration := range set.List() {
		if safe := declaration.SafeName(); wireName(safe) != safe {
			if names.long == nil {
				names.long = map[string]string{}
			}
			names.long[wireName(safe)] = safe
		}
	}
	return names
}

// wireName makes a safe name short enough. Two long names never become the same.
func wireName(safe string) string {
	safe = strings.Map(func(char rune) rune {
		if char == '/' || char == '.' || char == ':' {
			return '_'
		}
		return char
	}, safe)
	if len(safe) <= maxNameBytes {
		return safe
	}
	sum := sha256.Sum256([]byte(safe))
	return safe[:maxNameBytes-9] + "_" + hex.EncodeToString(sum[:4])
}

// declared gives the name that the loop knows for the one that the model wrote.
func (n toolNames) declared(written string) string {
	if safe, is := n.long[written]; is {
		return safe
	}
	return written
}

// shown gives the name that the model knows for one of the transcript.
func (n toolNames) shown(name string) string {
	if declaration, has := n.set.Get(n.set.Resolve(name)); has {
		return wireName(declaration.SafeName())
	}
	return wireName(tool.ProviderSafeName(name))
}

// tools describes the set to the model.
func (n toolNames) tools() []Tool {
	tools := make([]Tool, 0, n.set.Len())
	for _, declaration := range n.set.List() {
		tools = append(tools, Tool{
			Name: wireName(declaration.SafeName()), Description: declaration.Description(), Parameters: declaration.ModelParameters(),
		})
	}
	return tools
}
