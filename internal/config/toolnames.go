package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"inbox/identity"
)

// askTool is the tool with which a model asks other agents.
const askTool = "ask_agent"

// toolSetting is an entry of an agent's settings that names tools by their canonical names.
type toolSetting struct {
	key    string // below the agent, without the place in the list
	place  int    // in the list; -1 = the setting is no list
	before string // what stands before the name
	name   string // the name, or a pattern
}

// path is the key of the entry below the agent.
func (s *toolSetting) path() string {
	if s.place < 0 {
		return s.key
	}
	return element(s.key, s.place)
}

// matches reports whether the entry means the tool. Only entries of llm.actions are patterns.
func (s *toolSetting) matches(tool string) bool {
	if !strings.HasPrefix(s.key, "llm.actions.") {
		return s.name == tool
	}
	matched, _ := path.Match(s.name, tool) // validate checks the pattern
	return matched
}

// mayBelongTo reports whether the entry could mean a tool of an MCP server.
func (s *toolSetting) mayBelongTo(server string) bool {
	namespace, _, is := strings.Cut(s.name, "/")
	matched, _ := path.Match(namespace, server)
	return is && matched
}

// toolSettings returns all entries of the agent's settings that name tools by their canonical names.
func (a *Agent) toolSettings() (all []toolSetting) {
	list := func(key, before string, entries ...string) {
		for i, entry := range entries {
			name, is := strings.CutPrefix(entry, before)
			if is && name != "" && !strings.HasPrefix(entry, "category:") {
				all = append(all, toolSetting{key, i, before, name})
			}
		}
	}

	for i := range a.Rules {
		list(element("rules", i)+".purposes", identity.PurposeTool, a.Rules[i].Purposes...)
	}
	actions, policy := &a.LLM.Actions, &a.LLM.ToolPolicy
	list("llm.actions.direct", "", actions.Direct...)
	list("llm.actions.preview", "", actions.Preview...)
	list("llm.actions.forbidden", "", actions.Forbidden...)
	list("llm.tool_policy.tools", "", policy.Tools...)
	list("llm.tool_policy.mandatory_tools", "", policy.MandatoryTools...)
	list("llm.tool_policy.allow_only", "", policy.AllowOnly...)
	list("llm.tool_policy.deny", "", policy.Deny...)
	list("llm.tool_policy.runtime_tools", "", policy.RuntimeTools...)
	for i := range a.LLM.Budgets.Tools {
		all = append(all, toolSetting{element("llm.budgets.tools", i) + ".name", -1, "", a.LLM.Budgets.Tools[i].Name})
	}
	for i := range a.LLM.ToolCallRules {
		rule, key := &a.LLM.ToolCallRules[i], element("llm.tool_call_rules", i)
		if rule.AfterTool != "" {
			all = append(all, toolSetting{key + ".after_tool", -1, "", rule.AfterTool})
		}
		list(key+".limited_tools", "", rule.LimitedTools...)
		list(key+".require_one_of", "", rule.RequireOneOf...)
	}
	return all
}

// validateToolNames refuses the names for models. A canonical name has a slash, except ask_agent, so these entries match no tool and
// an approval or a prohibition would be missing without a word.
func (a *Agent) validateToolNames(p *problems, key string) {
	for _, one := range a.toolSettings() {
		if strings.Contains(one.name, "/") || !strings.Contains(one.name, "__") {
			continue
		}
		p.add(key+"."+one.path(), fmt.Sprintf("%q is a tool's name for models, which matches no tool here", one.before+one.name),
			fmt.Sprintf("write %q, the name with the server before a slash; inbox doctor shows both names of each tool", one.before+a.canonical(one.name)))
	}
}

// canonical guesses the canonical name of a name for models.
func (a *Agent) canonical(model string) string {
	namespaces := []string{"client"}
	for i := range a.MCP {
		namespaces = append(namespaces, a.MCP[i].Name)
	}
	for _, namespace := range namespaces {
		if rest, is := strings.CutPrefix(model, namespace+"__"); is {
			return namespace + "/" + rest
		}
	}
	return strings.Replace(model, "__", "/", 1)
}

// UnmatchedTool is an entry of an agent's settings that matches none of its tools, so it has no effect.
type UnmatchedTool struct {
	Setting string // as in agents[helper].llm.actions.preview
	Detail  string // the entry, and the name to write if a tool has a similar one
}

// UnmatchedTools returns the entries of the agent's settings that match none of its tools: those of the MCP servers, given by canonical
// name with the names that models use, and those of the configuration. It leaves out entries that may be about a tool of a server in
// unknown, whose tools are not known.
func (a *Agent) UnmatchedTools(served map[string]string, unknown []string) (unmatched []UnmatchedTool) {
	tools := map[string]string{askTool: askTool}
	if len(a.LLM.Agents) == 0 {
		tools = map[string]string{}
	}
	for i := range a.ClientTools {
		tools[a.ClientTools[i].FullName()] = modelNamespace + a.ClientTools[i].Name
	}
	maps.Copy(tools, served)

	for _, one := range a.toolSettings() {
		known, similar := false, []string{}
		for name, model := range tools {
			known = known || one.matches(name)
			_, own, _ := strings.Cut(name, "/")
			if one.name == model || lettersOf(one.name) == lettersOf(name) || lettersOf(one.name) == lettersOf(own) {
				similar = append(similar, name)
			}
		}
		if known || slices.ContainsFunc(unknown, one.mayBelongTo) {
			continue
		}

		detail := fmt.Sprintf("%q matches no tool", one.before+one.name)
		if slices.Sort(similar); len(similar) > 0 {
			detail += "; settings take the name " + one.before + strings.Join(similar, " or "+one.before)
		}
		unmatched = append(unmatched, UnmatchedTool{Setting: "agents[" + a.Name + "]." + one.key, Detail: detail})
	}
	return unmatched
}

// lettersOf returns what is left of names that differ only in how words are joined.
func lettersOf(name string) string {
	return strings.Map(func(char rune) rune {
		if unicode.IsLetter(char) || unicode.IsDigit(char) {
			return unicode.ToLower(char)
		}
		return -1
	}, name)
}
