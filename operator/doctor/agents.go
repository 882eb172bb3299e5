package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"inbox/adapters/email"
	"inbox/agents/llm"
	"inbox/agents/mcptool"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/agents/upstream"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// ExamineAgent looks whether what answers for an agent of a configuration is there, which tools it has and which of them no rule opens, as
// Examine does. It connects to the back end and starts MCP servers, but makes no run.
func (d *Doctor) ExamineAgent(ctx context.Context, c *config.Config, agent *config.Agent) []Finding {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	e := d.examiner(c)
	e.backEnd(ctx, agent)
	e.tools(ctx, agent)
	if len(e.findings) == 0 {
		e.say("agent "+agent.Name, email.FindingOK, "nothing outside this server answers for it", "")
	}
	return e.findings
}

// backEnd looks whether what answers for an agent is there. It makes no run: a web service and a model's provider are connected to,
// a card is fetched, a program is found.
func (d *examiner) backEnd(ctx context.Context, agent *config.Agent) {
	name := "agent " + agent.Name
	remedy := "start what answers for it, or correct " + agent.Kind + " of the agent"
	detail, err := d.answers(ctx, agent)
	switch {
	case err != nil:
		d.say(name, email.FindingFail, fault.InWords(err), remedy)
	case detail != "":
		d.say(name, email.FindingOK, detail, "")
	}
}

func (d *examiner) answers(ctx context.Context, agent *config.Agent) (detail string, err error) {
	table := config.KindNamed(agent.Kind)
	address := agent.BackEnd()
	switch {
	case table.BackEnd == "":
		return "", nil // it is built in, or fetches its messages
	case table.Model && address == "":
		address = map[string]string{llm.APIOpenAI: llm.DefaultOpenAIURL, llm.APIAnthropic: llm.DefaultAnthropicURL}[agent.LLM.Provider]
	case agent.Command.Program != "":
		return d.program(agent.Command)
	}

	place, err := upstream.Destination(address, "https://service.example/", "remove them")
	if err != nil {
		return "", err
	}
	if agent.Remote.CardURL != "" {
		return place + " has a card", d.card(ctx, address, place)
	}
	if _, err := d.dial(ctx, place, false); err != nil {
		return "", err
	}
	return place + " can be reached", nil
}

func (d *examiner) card(ctx context.Context, address, place string) error {
	response, err := d.client.Trusting(place).Get(ctx, address, safehttp.GetOptions{MaxBytes: longestCard})
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", upstream.WithoutQuery(address), response.Status)
	}
	if start, err := io.ReadAll(io.LimitReader(response.Body, 64)); err != nil || !strings.HasPrefix(strings.TrimSpace(string(start)), "{") {
		return fmt.Errorf("%s is no agent card", upstream.WithoutQuery(address))
	}
	return nil
}

// longestCard bounds the card of an agent elsewhere.
const longestCard = 1 << 20

// program looks for the program of a command, as the server that starts it would.
func (d *examiner) program(command config.Command) (detail string, err error) {
	if command.Directory != "" {
		if _, err := os.ReadDir(command.Directory); err != nil {
			return "", err
		}
	}
	program := command.Program
	if strings.Contains(program, "/") && !filepath.IsAbs(program) && command.Directory != "" {
		program = filepath.Join(command.Directory, program)
	}
	found, err := exec.LookPath(program)
	if err != nil {
		return "", err
	}
	return found + " can be started", nil
}

// tools starts the MCP servers of an agent, as the server does, and looks which tools they have, which of them no rule opens and which
// settings match none.
func (d *examiner) tools(ctx context.Context, agent *config.Agent) {
	if agent.Kind != "llm" {
		return
	}
	names, declared := make([]string, 0, len(agent.ClientTools)), map[string]string{}
	for i := range agent.ClientTools {
		one := &agent.ClientTools[i]
		names = append(names, one.FullName())
		declared[one.FullName()] = one.Action
	}

	served, unknown := d.mcpTools(ctx, agent)
	models := map[string]string{}
	for _, declaration := range served {
		name := value.Text(declaration["name"])
		names, models[name] = append(names, name), llm.ToolName(name)
		declared[name] = value.Text(declaration["action_policy"])
	}

	d.toolNames(agent.Name, names)
	for _, one := range agent.UnmatchedTools(models, unknown) {
		d.say(one.Setting, email.FindingWarn, one.Detail, "correct the name, or remove it: it has no effect")
	}
	d.closedTools(agent, names, declared)
}

// closedTools says which tools no rule opens. Those that need approval are offered all the same, and forbidden ones never.
func (d *examiner) closedTools(agent *config.Agent, names []string, declared map[string]string) {
	var actions llm.Actions
	actions.Tools, _ = agent.LLM.Actions.Policies() // no tool of these has a category
	policy, previewed, closed := agent.AccessPolicy(), []string{}, []string{}
	for _, name := range names {
		switch cmp.Or(actions.Of(name), declared[name]) {
		case tool.ActionForbidden:
		case tool.ActionPreview:
			previewed = append(previewed, name)
		default:
			if !policy.Opens(identity.PurposeTool + name) {
				closed = append(closed, name)
			}
		}
	}
	if len(previewed) > 0 {
		d.say("approvals of "+agent.Name, email.FindingOK, "offered to every sender, each call waits for approval: "+strings.Join(previewed, ", "), "")
	}
	if len(closed) > 0 {
		d.say("tools of "+agent.Name, email.FindingWarn, "no rule opens "+strings.Join(closed, ", ")+": the model never sees them", openingRule(agent, closed))
	}
}

// toolNames shows by which names models call the tools. Operators write the canonical ones, and look-alikes are easily taken for each other.
func (d *examiner) toolNames(agent string, canonical []string) {
	differing, told := map[string]string{}, []string{}
	for _, name := range slices.Sorted(slices.Values(canonical)) {
		if model := llm.ToolName(name); model != name {
			differing[name] = model
			told = append(told, name+" = "+model)
		}
	}
	if len(told) > 0 {
		d.say("tool names of "+agent, email.FindingOK, "names for models: "+strings.Join(told, ", "), "")
		d.findings[len(d.findings)-1].ToolNames = differing
	}
}

// openingRule is the rule that lets everybody who may talk to an agent use tools. The first rule of an agent needs access beside it.
func openingRule(agent *config.Agent, names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = config.Quote(identity.PurposeTool + name)
	}
	access := ""
	if len(agent.Rules) == 0 {
		access = "write access = " + config.Quote(agent.Access) + " below the name of the agent, if it has no access yet: rules require it, and the agent stays open to the same senders;\n"
	}
	return access + "write below the agent, with an address or an issuer where not everybody may use them:\n[[agents.rules]]\neffect = \"allow\"\npurposes = [" + strings.Join(quoted, ", ") + "]"
}

// mcpTools returns the declarations of the tools, and the servers whose tools are not all known.
func (d *examiner) mcpTools(ctx context.Context, agent *config.Agent) (declarations []map[string]any, unknown []string) {
	if len(agent.MCP) == 0 {
		return nil, nil
	}
	var servers []mcptool.Server
	for _, table := range agent.MCP {
		if err := d.mcpThere(ctx, table); err != nil {
			d.sayNoServer(table.Name, agent.Name, fault.InWords(err))
			unknown = append(unknown, table.Name)
			continue
		}
		servers = append(servers, mcptool.Server{
			Name: table.Name, Command: table.Command, Arguments: table.Arguments, Environment: table.Environment, Directory: table.Directory,
			URL: table.URL, Token: table.Token.Reveal(), Timeout: table.Timeout, Tools: table.Tools, Preview: table.Preview,
			Forbidden: table.Forbidden, AtMostOnce: table.AtMostOnce,
		})
	}
	source, err := mcptool.New(servers, mcptool.Options{Client: d.client, Log: slog.New(slog.DiscardHandler), ReconnectWait: patience})
	if err != nil {
		d.say("tools of "+agent.Name, email.FindingFail, fault.InWords(err), "correct agents.mcp")
		return nil, unknown
	}
	defer source.Close()

	source.Start()
	declarations = source.Declarations(ctx)
	for _, status := range source.Status() {
		if !status.Connected {
			d.sayNoServer(status.Server, agent.Name, cmp.Or(fault.InWords(errors.New(status.Reason)), "it does not answer in time"))
			unknown = append(unknown, status.Server)
			continue
		}
		if status.TooMany {
			unknown = append(unknown, status.Server)
		}
		d.say(mcpName(status.Server, agent.Name), email.FindingOK, fmt.Sprintf("%d tools", len(status.Tools)), "")
		for _, one := range status.Unmatched {
			d.say("agents["+agent.Name+"].mcp["+status.Server+"]."+one.Setting, email.FindingWarn, fmt.Sprintf("%q matches no tool of the server", one.Pattern),
				"write the name of a tool without its server, or a pattern, or remove it: it has no effect")
		}
	}
	for _, refused := range source.Rejected() {
		d.say("tool "+refused.Name+" of "+agent.Name, email.FindingWarn, refused.Reason, "correct the tool at the server, or change forbidden of its [[agents.mcp]]")
	}
	return declarations, unknown
}

func mcpName(server, agent string) string { return "MCP server " + server + " of " + agent }

func (d *examiner) sayNoServer(server, agent, detail string) {
	d.say(mcpName(server, agent), email.FindingFail, detail, "start it, or correct its command or url in agents.mcp")
}

// mcpThere looks for the program or the address of an MCP server, before it is spoken to.
func (d *examiner) mcpThere(ctx context.Context, table config.MCP) error {
	if table.URL == "" {
		_, err := d.program(config.Command{Program: table.Command, Directory: table.Directory})
		return err
	}
	place, err := upstream.Destination(table.URL, "https://tools.example/mcp", "write token or token_file")
	if err == nil {
		_, err = d.dial(ctx, place, false)
	}
	return err
}
