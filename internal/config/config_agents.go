package config

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// LLM is the model behind an agent of kind `llm` ([llm.md](agents/llm.md)). You wrote the address, so it may be private.
type LLM struct {
	// Wire format of the provider: `openai` (chat completions, which local servers speak, too) or `anthropic` (messages).
	Provider string `toml:"provider"`
	// Where the API is, with its version path if it has one: `https://…`, or `http://…` in your own network. No user or
	// password in it; the server does not follow redirects.
	BaseURL string `toml:"base_url" default:"that of the provider"`
	// Name under which the provider knows the model.
	Model string `toml:"model" default:"none; required"`
	// Key that the provider gave you; empty for local servers without one. Sent only to `base_url`, and removed from everything
	// that is logged.
	APIKey Secret `toml:"api_key"`
	// File with that key instead; a line end after it is cut off.
	APIKeyFile string `toml:"api_key_file"`
	// What the agent is and how it should answer. The server adds rules for reading the conversation.
	System string `toml:"system"`
	// File with that text instead.
	SystemFile string `toml:"system_file"`
	// Calls of the model for one message. In the last one it must answer without tools.
	MaxTurns int `toml:"max_turns"`
	// Tool calls for one message. When they are used up, the model is asked once more to answer with what it has.
	MaxToolCalls int `toml:"max_tool_calls"`
	// Longest answer of the model in tokens; 0 = the provider's own limit, with `anthropic` 4096.
	MaxTokens int `toml:"max_tokens"`
	// How freely the model chooses its words: 0 to 2.
	Temperature *float64 `toml:"temperature" default:"that of the provider"`
	// Whether the server reads the model's answer while it grows. Write false for servers that stream badly: the answer then
	// comes in one piece.
	Streaming bool `toml:"streaming"`
	// After so long in one run the model is not asked again; the agent's `timeout` ends the run itself. 0s = that timeout
	// alone.
	WallClock time.Duration `toml:"wall_clock"`
	// How long one call of the model may take.
	CallTimeout time.Duration `toml:"call_timeout"`
	// How long the model may pause inside one answer.
	IdleTimeout time.Duration `toml:"idle_timeout"`
	// How often the server makes a call that the provider refuses for now (429, 5xx) or that did not reach it. 1 = once.
	Attempts int `toml:"attempts"`
	// Pause before the second attempt; each later one is twice as long.
	RetryBase time.Duration `toml:"retry_base"`
	// Longest pause; a provider that asks for more is asked again by the queue.
	RetryMax time.Duration `toml:"retry_max"`
	// Addresses of other agents that the model may ask with the tool `ask_agent`: `@name@domain`.
	Agents        []string       `toml:"agents"`
	Price         Price          `toml:"price"`
	Actions       Actions        `toml:"actions"`
	ToolPolicy    ToolPolicy     `toml:"tool_policy"`
	Compaction    Compaction     `toml:"compaction"`
	ToolCallRules []ToolCallRule `toml:"tool_call_rules"`
	Budgets       Budgets        `toml:"budgets"`
	Hooks         Hooks          `toml:"hooks"`
}

// MCP is one server of tools (Model Context Protocol) of an agent of kind `llm` ([mcp-tools.md](agents/mcp-tools.md)). Either
// `command` or `url`.
type MCP struct {
	// Part of its tools' names before the slash: lower-case letters, digits, `_` and `-`, a letter first, at most 32; not
	// `client` or `host`.
	Name string `toml:"name" default:"none; required"`
	// Program that the server starts and speaks to over standard input and output. Without a slash it is looked up in `PATH`.
	Command string `toml:"command"`
	// Arguments of the program.
	Arguments []string `toml:"arguments"`
	// Environment variables that the program gets: `"NAME"` passes the server's value on, `"NAME=value"` sets one. Beside PATH,
	// HOME, LANG and TMPDIR it gets nothing else of the server's environment.
	Environment []string `toml:"environment"`
	// Directory in which the program runs; empty = that of the server.
	Directory string `toml:"directory"`
	// Address of a service that is called over HTTP. It may be private and plain HTTP because you wrote it. No user or password
	// in it; the server does not follow redirects.
	URL string `toml:"url"`
	// Bearer token for that service, sent only to `url`.
	Token Secret `toml:"token"`
	// File with that token instead; a line end after it is cut off.
	TokenFile string `toml:"token_file"`
	// How long one call may take.
	Timeout time.Duration `toml:"timeout"`
	// Patterns of the tools that the agent may have; empty = all.
	Tools []string `toml:"tools"`
	// Patterns of tools that need approval for each call. They are offered to every sender.
	Preview []string `toml:"preview"`
	// Patterns of tools that are neither shown nor run; stronger than all others.
	Forbidden []string `toml:"forbidden"`
	// Patterns of tools that never run a second time with the same parameters in one run, not even after a crash.
	AtMostOnce []string `toml:"at_most_once"`
}

// Command is the program of an agent of kind `command`: the message comes as JSON on its standard input
// ([command.md](agents/command.md)).
type Command struct {
	// Path, or a name that is looked up in `PATH` when the server starts.
	Program string `toml:"program"`
	// Arguments, passed unchanged. No shell reads them: `*`, `$HOME` and `;` are plain characters.
	Arguments []string `toml:"arguments"`
	// Environment variables that the program gets, and no others: `"NAME"` passes the server's value on, `"NAME=value"` sets
	// one. Not written = `PATH HOME LANG LC_ALL TZ TMPDIR`. Names that begin with `INBOX_` are refused: they are settings of
	// the server.
	Environment []string `toml:"environment"`
	// Directory in which the program runs; empty = that of the server.
	Directory string `toml:"directory"`
	// Private memory of each process ([command.md](agents/command.md)); 0 = no limit.
	MemoryBytes Size `toml:"memory_bytes"`
	// What the program prints: `json` (a response) or `text`.
	Output string `toml:"output"`
}

// Remote is the A2A agent behind an agent of kind `remote` ([remote.md](agents/remote.md)). You wrote the address, so it may be
// private.
type Remote struct {
	// Address of its agent card. An address that is neither a `.json` document nor below `/.well-known/` is a base:
	// `/.well-known/agent-card.json` is added.
	CardURL string `toml:"card_url"`
	// Bearer token that it wants.
	Token Secret `toml:"token"`
	// File with that token instead; a line end after it is cut off.
	TokenFile string `toml:"token_file"`
	// Token endpoint, if it wants OAuth 2 client credentials instead. The server keeps a token until shortly before it expires,
	// and replaces one that is refused once.
	TokenURL string `toml:"token_url"`
	// Client id for that endpoint.
	ClientID string `toml:"client_id"`
	// Client secret for that endpoint.
	ClientSecret Secret `toml:"client_secret"`
	// File with that secret instead; a line end after it is cut off.
	ClientSecretFile string `toml:"client_secret_file"`
	// Scopes that the server asks for.
	Scopes []string `toml:"scopes"`
	// Further hosts (`host:port`) where the card may lead and where the credentials may be shown.
	EndpointHosts []string `toml:"endpoint_hosts"`
}

// Pull is how an agent of kind `pull` fetches its messages from `/v1/pull/<name>` ([pull.md](agents/pull.md)).
type Pull struct {
	// How long a program may be silent before another one gets its message.
	Lease time.Duration `toml:"lease"`
	// How long an offered turn waits for the program that asked to take it, before the attempt fails; at most 10m. Turns
	// wait without an offer, and without a limit, while no program asks.
	MaxWait time.Duration `toml:"max_wait"`
}

// setDefaults fills a table [[agents.mcp]] before its keys are read.
func (m *MCP) setDefaults() { *m = MCP{Timeout: 30 * time.Second} }

// ClientTool is a tool that your program executes, wherever it runs: it fetches the calls from `/v1/tools/<agent>/requests` and
// hands in the results, and the message waits for it ([client-tools.md](agents/client-tools.md)).
type ClientTool struct {
	// Name; rules and programs know the tool as `client/name`, models as `client__name`. A lower-case letter, then letters,
	// digits, `_` and `-`; not `client__` at the start.
	Name string `toml:"name" default:"none; required"`
	// What the tool does and when to use it, for the model.
	Description string `toml:"description" default:"none; required"`
	// JSON Schema of its parameters, an object. The server checks `required` before it makes a call.
	Parameters string `toml:"parameters"`
	// File with that schema instead.
	ParametersFile string `toml:"parameters_file"`
	// [Parameters that the server fills](agents/client-tools.md#parameters-that-the-server-fills), a JSON object:
	// `{"customer":{"source":"caller_context","path":"address","authoritative":true}}`.
	ParameterBindings string `toml:"parameter_bindings"`
	// Values of parameters that the model leaves out, a JSON object. Write no secret here: a name such as `token` gets
	// `[redacted]`.
	ParameterDefaults string `toml:"parameter_defaults"`
	// How long a call waits for its result, at most 144h; then the model reads that there is none.
	Timeout time.Duration `toml:"timeout"`
	// `direct`, `preview` (each call needs [approval](approvals.md) first) or `forbidden` (never). `llm.actions` takes
	// precedence.
	Action string `toml:"action"`
	// Whether equal calls for one message are made once; the second gets the result of the first.
	AtMostOnce bool `toml:"at_most_once"`
	// The same with the words of the agent runtime: `repeatable`, or `once`, `non_repeatable` or `at_most_once`, which are the
	// same.
	DuplicatePolicy string `toml:"duplicate_policy" default:"by at_most_once"`
	// `progress`: a success advances the work. The result carries it, and [hooks](agents/hooks.md) read it.
	CompletionSignal string `toml:"completion_signal"`
	// `runtime_local`, or `control_plane`: [no program with a token sees the
	// calls](agents/client-tools.md#tools-of-the-control-plane); you execute them yourself.
	CapabilityScope string `toml:"capability_scope"`
	// Where the tool is meant to run, in the same words and with the same effect.
	Environment string `toml:"environment"`
	// Whether results contain what strangers wrote (web pages, mails): they are marked as such for the model.
	Untrusted bool `toml:"untrusted"`
	// Whether [the chat client that sent the message](agents/client-tools.md#tools-of-the-chat-client) executes it, such as the
	// page with the chat: the call is in its answer, and the sender of the message can choose the result.
	Asker bool `toml:"asker"`
}

// setDefaults fills a table [[agents.client_tools]] before its keys are read.
func (t *ClientTool) setDefaults() {
	*t = ClientTool{Timeout: time.Hour, Action: "direct", CapabilityScope: runtimeLocal, Environment: runtimeLocal}
}

// Words of capability_scope and environment.
const (
	runtimeLocal = "runtime_local"
	controlPlane = "control_plane"
)

// Duplicates is the duplicate_policy of a tool; empty = repeatable.
func (t *ClientTool) Duplicates() string {
	if t.DuplicatePolicy == "" && t.AtMostOnce {
		return "at_most_once"
	}
	return t.DuplicatePolicy
}

func (t *ClientTool) validateRuntime(p *problems, key string) {
	if t.DuplicatePolicy != "" {
		oneOf(p, key+".duplicate_policy", t.DuplicatePolicy, "repeatable", "once", "non_repeatable", "at_most_once")
	}
	if t.AtMostOnce && t.DuplicatePolicy == "repeatable" {
		p.add(key+".duplicate_policy", "is repeatable, but at_most_once is true", "remove one of them")
	}
	if t.CompletionSignal != "" {
		oneOf(p, key+".completion_signal", t.CompletionSignal, "progress")
	}

	oneOf(p, key+".capability_scope", t.CapabilityScope, runtimeLocal, controlPlane)
	oneOf(p, key+".environment", t.Environment, runtimeLocal, controlPlane)
	if t.Asker && (t.CapabilityScope == controlPlane || t.Environment == controlPlane) {
		p.add(key+".asker", "hands the tool to every sender, but it belongs to the control plane", "remove one of them")
	}
}

// maxSchemaBytes bounds the schema of one tool.
const maxSchemaBytes = 256 << 10

// longestToolWait is how long a message can wait for a tool: what was done so far is remembered for a week.
const longestToolWait = 6 * 24 * time.Hour

// modelNamespace is the namespace of client tools in the names that models and clients of the chat use.
const modelNamespace = "client__"

var clientToolName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)

func (a *Agent) validateClientTools(p *problems, key string) {
	names := map[string]bool{}
	for i := range a.ClientTools {
		tool, at := &a.ClientTools[i], element(key, i)
		switch {
		case !clientToolName.MatchString(tool.Name):
			p.add(at+".name", fmt.Sprintf("%q cannot be the name of a tool", tool.Name), "write a lower-case letter, then letters, digits, _ and -, at most 64")
		case strings.HasPrefix(tool.Name, modelNamespace):
			p.add(at+".name", fmt.Sprintf("%q would also be the name that models use for %s", tool.Name, "client/"+strings.TrimPrefix(tool.Name, modelNamespace)), "write a name that does not begin with "+modelNamespace)
		case names[tool.Name]:
			p.add(at+".name", fmt.Sprintf("%q is a duplicate", tool.Name), "write another name")
		}

		names[tool.Name] = true
		if strings.TrimSpace(tool.Description) == "" {
			p.add(at+".description", "is missing, so the model would not know when to use the tool", "write a sentence")
		}

		oneOf(p, at+".action", tool.Action, "direct", "preview", "forbidden")
		within(p, at+".timeout", tool.Timeout, time.Second, longestToolWait)
		tool.validateSchema(p, at)
		tool.validateRuntime(p, at)
	}
}

func (t *ClientTool) validateSchema(p *problems, key string) {
	for _, one := range []struct{ name, text, example string }{
		{"parameters", t.Parameters, `a JSON Schema such as '{"type":"object","properties":{"city":{"type":"string"}}}'`},
		{"parameter_bindings", t.ParameterBindings, `one such as '{"customer":"caller_context.address"}'`},
		{"parameter_defaults", t.ParameterDefaults, `one such as '{"limit":10}'`},
	} {
		var object map[string]json.RawMessage
		if one.text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(one.text), &object); err != nil || object == nil || len(one.text) > maxSchemaBytes {
			p.add(key+"."+one.name, fmt.Sprintf("is not a JSON object of at most %d bytes", maxSchemaBytes), "write "+one.example)
		}
	}
}

// readSchema reads the file of the parameters.
func (t *ClientTool) readSchema(key string, found *problems) {
	if t.ParametersFile == "" {
		return
	}
	if t.Parameters != "" {
		found.add(key+".parameters_file", "the schema is set twice", "write parameters or parameters_file, not both")
		return
	}

	info, err := os.Stat(t.ParametersFile)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxSchemaBytes) {
		err = fmt.Errorf("%s is not a file of at most %d bytes", t.ParametersFile, maxSchemaBytes)
	}

	var content []byte
	if err == nil {
		content, err = os.ReadFile(t.ParametersFile)
	}
	if err != nil {
		found.add(key+".parameters_file", err.Error(), fileAdvice(err))
		return
	}

	t.Parameters = string(content)
}

// Chat is chat over HTTP: JSON-RPC, REST, the form of OpenAI's API and the chat of web pages.
type Chat struct {
	// Origins of web pages elsewhere that may call the chat and A2A from a browser, such as `https://www.example.com`; `*` =
	// all. Pages of `public_url` always may.
	AllowedOrigins []string `toml:"allowed_origins"`
	// How long the server waits for an answer that is not streamed. Then it tells the client to ask again; the run continues.
	Wait time.Duration `toml:"wait"`
	// Whether guests may write to agents whose `unverified` is `hold`. Their messages wait until you release them, and the
	// answer appears in the open page. Otherwise such agents take no guests.
	HoldGuests bool `toml:"hold_guests"`
}

func defaultChat() Chat { return Chat{Wait: 2 * time.Minute} }

func (c *Config) validateChat(p *problems) {
	within(p, "chat.wait", c.Chat.Wait, time.Second, time.Hour)
	for i, origin := range c.Chat.AllowedOrigins {
		u, err := url.Parse(origin)
		if origin == "*" || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && origin == u.Scheme+"://"+u.Host {
			continue
		}
		p.add("chat.allowed_origins", fmt.Sprintf("entry %d, %q, is not an origin", i+1, origin), `write scheme, host and port alone, such as "https://www.example.com", or "*"`)
	}
}

// ApproverMethods say what proves one approver who decides by message. Only mails and posts of people do: programs with a token, agents and
// automatic messages never approve.
type ApproverMethods struct {
	// The address of the approver, as in `approvers`.
	Address string `toml:"address" default:"none; required"`
	// What counts: `email-dmarc` (a mail that passed DMARC), `email-dkim` (a mail with an aligned signature, of a domain without
	// DMARC), `ap-http-signature` (a post that the server of the account signed on its way here), `ap-object-proof` (a post that its
	// author signed). The account must be the one that WebFinger of the address names. Without a table the first two count for a
	// mailbox, and the third for an account.
	Methods []string `toml:"methods" default:"none; required"`
}

// approverMethods are the values of ApproverMethods.Methods.
var approverMethods = []string{"email-dmarc", "email-dkim", "ap-http-signature", "ap-object-proof"}

// validateApproverMethods runs after the approvers were checked.
func (a *Agent) validateApproverMethods(p *problems, key string) {
	seen := map[string]bool{}
	for i := range a.ApproverMethods {
		entry, own := &a.ApproverMethods[i], element(key+".approver_methods", i)
		isNamed := func(text string) bool { return strings.EqualFold(text, entry.Address) }
		switch place := slices.IndexFunc(a.Approvers, isNamed); {
		case place < 0:
			p.add(own+".address", fmt.Sprintf("%q is no approver of the agent", entry.Address), "write one of approvers")
		case seen[a.Approvers[place]]:
			p.add(own+".address", fmt.Sprintf("%q is written twice", entry.Address), "write all methods of an approver into one table")
		default:
			seen[a.Approvers[place]], entry.Address = true, a.Approvers[place]
		}

		if len(entry.Methods) == 0 {
			p.add(own+".methods", "is missing", "write what proves the approver, such as [\"email-dmarc\"], or remove the table for the default")
		}
		for _, method := range entry.Methods {
			oneOf(p, own+".methods", method, approverMethods...)
		}
	}
}
