package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/agents"
	"inbox/agents/clienttool"
	"inbox/agents/llm"
	"inbox/agents/runtime/envelope"
	"inbox/internal/config"
)

// newLLM makes an agent that answers with a model and the tools of MCP servers.
func (s *Server) newLLM(entry config.Agent) (agents.Agent, error) {
	table := entry.LLM
	provider, err := llm.Connect(llm.Connection{
		API: table.Provider, BaseURL: table.BaseURL, APIKey: table.APIKey.Reveal(), Client: s.client,
		TimeLimit: table.CallTimeout, IdleLimit: table.IdleTimeout,
		Retry: llm.Retry{Attempts: table.Attempts, Base: table.RetryBase, Max: table.RetryMax},
	})
	if err != nil {
		return nil, err
	}
	tools, err := s.newTools(entry.MCP)
	if err != nil {
		return nil, err
	}
	outside, err := s.newClientTools(entry)
	if err != nil {
		return nil, err
	}
	tools = append(tools, outside...)
	if len(table.Agents) > 0 {
		asking, err := llm.Asking(table.Agents)
		if err != nil {
			return nil, err
		}
		tools = append(tools, asking)
	}
	return llm.New(llm.Options{
		Provider: provider, Model: table.Model, System: table.System, MaxTokens: table.MaxTokens, MaxTurns: table.MaxTurns,
		ToolCalls: table.MaxToolCalls, WallClock: table.WallClock, Temperature: table.Temperature, Whole: !table.Streaming,
		Tools: tools, Approvals: llm.ByDemand{Tools: tools, Claims: s.store.State()},
		Compaction: s.compaction(table.Compaction), Actions: actions(table.Actions), Price: llm.Price(table.Price),
		ToolPolicy: toolPolicy(table.ToolPolicy, entry.ClientTools),
		Files:      s.blobs, Client: s.client, Limits: s.limits(),
	})
}

const (
	archiveNamespace = "agents.archive" // turn id, "/", id of the archive → list of envelopes
	archiveLife      = 30 * 24 * time.Hour
)

// archive keeps what was taken out of conversations that were too long.
type archive struct{ server *Server }

// Keep stores messages under the turn.
func (a archive) Keep(ctx context.Context, turn agents.Turn, id string, items []envelope.Envelope) error {
	body, err := json.Marshal(items)
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return a.server.store.State().Put(ctx, archiveNamespace, turn.ID+"/"+id, body, time.Now().Add(archiveLife))
}

func (s *Server) compaction(table config.Compaction) *llm.Compaction {
	if !table.Enabled {
		return nil
	}
	return &llm.Compaction{
		Threshold: int(table.Threshold), Keep: table.KeepMessages, ArchiveOver: int(table.ArchiveOver), Model: table.Model, Archive: archive{s},
	}
}

// actions reads the three lists. Validation has made sure that nothing is in two of them.
func actions(table config.Actions) llm.Actions {
	read := llm.Actions{Tools: map[string]string{}, Categories: map[string]string{}}
	for policy, entries := range map[string][]string{"direct": table.Direct, "preview": table.Preview, "forbidden": table.Forbidden} {
		for _, entry := range entries {
			if category, is := strings.CutPrefix(entry, "category:"); is {
				read.Categories[category] = policy
				continue
			}
			read.Tools[entry] = policy
		}
	}
	return read
}

// toolPolicy is the operator's table. Client tools are declared by the operator alone, which is the opt-in that the
// policy wants for tools that run outside.
func toolPolicy(table config.ToolPolicy, outside []config.ClientTool) map[string]any {
	for _, one := range outside {
		table.RuntimeTools = append(slices.Clip(table.RuntimeTools), clienttool.Namespace+one.Name)
	}
	list := func(words []string) []any {
		values := make([]any, len(words))
		for i, word := range words {
			values[i] = word
		}
		return values
	}
	return map[string]any{
		"mode": table.Mode, "tools": list(table.Tools), "categories": list(table.Categories),
		"mandatory_tools": list(table.MandatoryTools), "mandatory_categories": list(table.MandatoryCategories),
		"allow_only": list(table.AllowOnly), "deny": list(table.Deny),
		"runtime_tools": list(table.RuntimeTools), "runtime_categories": list(table.RuntimeCategories),
		"allow_write_tools": table.AllowWriteTools,
	}
}
