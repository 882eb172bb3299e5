package llm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"inbox/agents"
	"inbox/agents/runtime/tool"
)

// maxNameBytes is the longest tool name that all providers accept.
const maxNameBytes = 64

var (
	canonicalName   = regexp.MustCompile(`^[a-z][a-z0-9_-]*(/[a-z][a-z0-9_-]*)?$`)
	providerName    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	notProviderName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)
)

// ToolName returns the name that models use for the tool with a canonical name, at most 64 of A-Z, a-z, 0-9, "_" and "-".
// It depends on that name only, never on other tools: "notes/add" is "notes__add". A name that contains "__" itself, or is too
// long, gets a hash, so different tools have different names.
func ToolName(canonical string) string {
	readable := notProviderName.ReplaceAllString(canonical, "__")
	if canonicalName.MatchString(canonical) && !strings.Contains(canonical, "__") && len(readable) <= maxNameBytes {
		return readable
	}

	// No part of a canonical name starts with a digit, so no readable name ends like this.
	sum := sha256.Sum256([]byte(canonical))
	suffix := "__0" + hex.EncodeToString(sum[:6])
	return readable[:min(len(readable), maxNameBytes-len(suffix))] + suffix
}

// declaredTool is a declaration and the source that runs its calls.
type declaredTool struct {
	*tool.Declaration

	source Tools
}

// declaredTools lists the tools of all sources, each with the name that models use for it. It leaves out tools that could be taken for
// one another, whatever their order.
func declaredTools(ctx context.Context, turn agents.Turn, sources []Tools) (list []declaredTool, rejected []tool.Rejection, err error) {
	for _, source := range sources {
		if outside, is := source.(interface{ Outside() bool }); is && outside.Outside() && turn.Requests == nil {
			continue
		}

		entries, err := source.Declarations(ctx, turn)
		if err != nil {
			return nil, nil, fmt.Errorf("list tools: %w", err)
		}

		declared, wrong := tool.Declare(entries)
		rejected = append(rejected, wrong...)
		if source, is := source.(rejecting); is {
			rejected = append(rejected, source.Rejected()...)
		}
		for _, declaration := range declared.List() {
			list = append(list, declaredTool{declaration.Offered(ToolName(declaration.Name())), source})
		}
	}

	list, ambiguous := withoutAmbiguous(list)
	return list, append(rejected, ambiguous...), nil
}

// withoutAmbiguous leaves out every tool whose name is also a name of another one.
func withoutAmbiguous(list []declaredTool) (distinct []declaredTool, rejected []tool.Rejection) {
	canonical, offered := map[string][]int{}, map[string][]int{}
	for i, one := range list {
		canonical[one.Name()] = append(canonical[one.Name()], i)
		offered[one.SafeName()] = append(offered[one.SafeName()], i)
	}

	for i, one := range list {
		reason := ""
		for _, other := range append(append(canonical[one.Name()], offered[one.Name()]...), offered[one.SafeName()]...) {
			switch {
			case other == i:
			case list[other].Name() == one.Name():
				reason = fmt.Sprintf("%s of %s and %s of %s have the same name; rename one of them", one.Name(), one.Source(), list[other].Name(), list[other].Source())
			default:
				reason = fmt.Sprintf("models use the name %s for %s; rename one of them", list[other].SafeName(), list[other].Name())
			}
		}
		if reason == "" {
			distinct = append(distinct, one)
			continue
		}
		rejected = append(rejected, tool.Rejection{Name: one.Name(), Reason: reason})
	}
	return distinct, rejected
}

// called returns the name that the loop uses for the tool that a model wrote: rules and budgets count one name of each tool.
func called(tools tool.Declarations, written string) string {
	if declaration, has := tools.Get(tools.Resolve(written)); has {
		return declaration.SafeName()
	}
	return written
}

// shown returns the name under which the model is shown a call of the transcript. The tool may be gone, or never have existed.
func shown(tools tool.Declarations, name string) string {
	if name = called(tools, name); providerName.MatchString(name) {
		return name
	}
	return ToolName(name)
}

// described returns the tools as a provider gets them.
func described(declared tool.Declarations) []Tool {
	tools := make([]Tool, 0, declared.Len())
	for _, declaration := range declared.List() {
		tools = append(tools, Tool{Name: declaration.SafeName(), Description: declaration.Description(), Parameters: declaration.ModelParameters()})
	}
	return tools
}
