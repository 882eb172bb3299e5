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

// tools starts the MCP servers of an agent, as the server does, and looks which tools they have and which of them no rule opens.
func (d *examiner) tools(ctx context.Context, agent *config.Agent) {
	names := make([]string, 0, len(agent.ClientTools))
	for i := range agent.ClientTools {
		names = append(names, agent.ClientTools[i].FullName())
	}
	if len(agent.MCP) > 0 {
		names = append(names, d.mcpTools(ctx, agent)...)
	}

	policy := agent.AccessPolicy()
	names = slices.DeleteFunc(names, func(name string) bool { return policy.Opens(identity.PurposeTool + name) })
	if len(names) > 0 {
		d.say("tools of "+agent.Name, email.FindingWarn, "no rule opens "+strings.Join(names, ", ")+": the model never sees them", openingRule(names))
	}
}

// openingRule is the rule that lets everybody who may talk to an agent use tools.
func openingRule(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = config.Quote(identity.PurposeTool + name)
	}
	return "write below the agent, with an address or an issuer where not everybody may use them:\n[[agents.rules]]\neffect = \"allow\"\npurposes = [" + strings.Join(quoted, ", ") + "]"
}

func (d *examiner) mcpTools(ctx context.Context, agent *config.Agent) (names []string) {
	var servers []mcptool.Server
	for _, table := range agent.MCP {
		if err := d.mcpThere(ctx, table); err != nil {
			d.sayNoServer(table.Name, agent.Name, fault.InWords(err))
			continue
		}
		servers = append(servers, mcptool.Server{
			Name: table.Name, Command: table.Command, Arguments: table.Arguments, Environment: table.Environment, Directory: table.Directory,
			URL: table.URL, Token: table.Token.Reveal(), Timeout: table.Timeout, Tools: table.Tools, Forbidden: table.Forbidden,
		})
	}
	source, err := mcptool.New(servers, mcptool.Options{Client: d.client, Log: slog.New(slog.DiscardHandler), ReconnectWait: patience})
	if err != nil {
		d.say("tools of "+agent.Name, email.FindingFail, fault.InWords(err), "correct agents.mcp")
		return nil
	}
	defer source.Close()

	source.Start()
	source.Declarations(ctx)
	for _, status := range source.Status() {
		if !status.Connected {
			d.sayNoServer(status.Server, agent.Name, cmp.Or(fault.InWords(errors.New(status.Reason)), "it does not answer in time"))
			continue
		}
		d.say(mcpName(status.Server, agent.Name), email.FindingOK, fmt.Sprintf("%d tools", len(status.Tools)), "")
		names = append(names, status.Tools...)
	}
	return names
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
