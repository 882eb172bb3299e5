package config

import "time"

// LLM is the model behind an agent of kind llm. The operator wrote the address, so it may be private.
type LLM struct {
	// Which wire format the provider speaks: `openai` (chat completions, as local servers speak it, too) or `anthropic`
	// (messages).
	Provider string `toml:"provider"`
	// Where the provider is reached, with its version path if it has one: `https://…`, or `http://…` in your own network.
	BaseURL string `toml:"base_url" default:"that of the provider"`
	// Name of the model.
	Model string `toml:"model" default:"none; required"`
	// Key that the provider gave you; empty for local servers without one.
	APIKey Secret `toml:"api_key"`
	// File with that key instead; a line end after it is cut off.
	APIKeyFile string `toml:"api_key_file"`
	// What the model is told first.
	System string `toml:"system"`
	// File with that text instead.
	SystemFile string `toml:"system_file"`
	// How often the model may be asked in one run.
	MaxTurns int `toml:"max_turns"`
	// How many tools may be called in one run.
	MaxToolCalls int `toml:"max_tool_calls"`
	// Longest answer of the model in tokens; 0 = the provider's own limit.
	MaxTokens int `toml:"max_tokens"`
	// How freely the model chooses its words: 0 to 2.
	Temperature *float64 `toml:"temperature" default:"that of the provider"`
	// Whether the model's answer is read while it grows. Write false for servers that stream badly.
	Streaming bool `toml:"streaming"`
	// After so long in one run the model is not asked again; 0s = the agent's timeout alone.
	WallClock time.Duration `toml:"wall_clock"`
	// How long one call of the model may take.
	CallTimeout time.Duration `toml:"call_timeout"`
	// How long the model may say nothing inside of one answer.
	IdleTimeout time.Duration `toml:"idle_timeout"`
	// How often a call is made that the provider refuses for now (429, 5xx) or that did not reach it. 1 = once.
	Attempts int `toml:"attempts"`
	// Pause before the second attempt; each later one is twice as long.
	RetryBase time.Duration `toml:"retry_base"`
	// Longest pause; a provider that asks for more is asked again by the queue.
	RetryMax time.Duration `toml:"retry_max"`
	// Addresses of other agents that the model may ask with the tool `ask_agent`: `@name@domain`.
	Agents []string `toml:"agents"`
	// What a million tokens cost, for the timeline.
	Price Price `toml:"price"`
	// How tools may be used.
	Actions Actions `toml:"actions"`
	// Which tools the model sees.
	ToolPolicy ToolPolicy `toml:"tool_policy"`
	// What happens to conversations that are too long for the model.
	Compaction Compaction `toml:"compaction"`
}

// MCP is one server of tools (Model Context Protocol). Either command or url.
type MCP struct {
	// Short name; tools are called `name/tool`. Lower-case letters, digits, `_` and `-`.
	Name string `toml:"name" default:"none; required"`
	// Program that is started and spoken to over its standard input and output.
	Command string `toml:"command"`
	// Arguments of the program.
	Arguments []string `toml:"arguments"`
	// Environment variables that the program gets: `"NAME"` passes ours on, `"NAME=value"` sets one. Beside PATH, HOME,
	// LANG and TMPDIR nothing else of our environment reaches it.
	Environment []string `toml:"environment"`
	// Directory in which the program runs.
	Directory string `toml:"directory"`
	// Address of a server that is spoken to over HTTP.
	URL string `toml:"url"`
	// Bearer token for that server.
	Token Secret `toml:"token"`
	// File with that token instead; a line end after it is cut off.
	TokenFile string `toml:"token_file"`
	// How long one call may take.
	Timeout time.Duration `toml:"timeout"`
	// Patterns of the tools that the agent may see; empty = all.
	Tools []string `toml:"tools"`
	// Patterns of tools whose calls need approval first.
	Preview []string `toml:"preview"`
	// Patterns of tools that are never called.
	Forbidden []string `toml:"forbidden"`
	// Patterns of tools that are never called a second time, even when the server died during the call.
	AtMostOnce []string `toml:"at_most_once"`
}

// Command is the program of an agent of kind command: the message comes as JSON on its standard input.
type Command struct {
	// Path of the program. No shell is involved.
	Program string `toml:"program"`
	// Arguments of the program.
	Arguments []string `toml:"arguments"`
	// Environment variables that the program gets: `"NAME"` passes ours on, `"NAME=value"` sets one; not written = PATH,
	// HOME, LANG and a few more.
	Environment []string `toml:"environment"`
	// Directory in which the program runs.
	Directory string `toml:"directory"`
	// Most memory that the program may use; 0 = no limit.
	MemoryBytes Size `toml:"memory_bytes"`
	// What the program prints: `json` (a response) or `text`.
	Output string `toml:"output"`
}

// Remote is the A2A agent behind an agent of kind remote. The operator wrote the address, so it may be private.
type Remote struct {
	// Address of its agent card.
	CardURL string `toml:"card_url"`
	// Bearer token that it wants.
	Token Secret `toml:"token"`
	// File with that token instead; a line end after it is cut off.
	TokenFile string `toml:"token_file"`
	// Token endpoint, when it wants OAuth 2 client credentials instead.
	TokenURL string `toml:"token_url"`
	// Client id for that endpoint.
	ClientID string `toml:"client_id"`
	// Client secret for that endpoint.
	ClientSecret Secret `toml:"client_secret"`
	// File with that secret instead; a line end after it is cut off.
	ClientSecretFile string `toml:"client_secret_file"`
	// Scopes that are asked for.
	Scopes []string `toml:"scopes"`
	// Further hosts (`host:port`) where the card may lead and where the credentials may be shown.
	EndpointHosts []string `toml:"endpoint_hosts"`
}

// Pull is how an agent of kind pull fetches its messages from `/v1/pull/<name>`.
type Pull struct {
	// How long a program may give no sign of life before its message is given to another one.
	Lease time.Duration `toml:"lease"`
	// How long an offered turn waits for the program that asked to take it, before the attempt fails; at most 10m. Turns
	// wait without an offer, and without a limit, while no program asks.
	MaxWait time.Duration `toml:"max_wait"`
}

// setDefaults fills a table [[agents.mcp]] before its keys are read.
func (m *MCP) setDefaults() { *m = MCP{Timeout: 30 * time.Second} }
