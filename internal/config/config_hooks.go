package config

import (
	"fmt"
	"math"
	"time"
)

// Hooks are a program of your own that decides and listens while an agent of kind `llm` works, by signed HTTP requests
// ([hooks.md](agents/hooks.md)). You wrote the address, so it may be private.
type Hooks struct {
	// Where the requests are posted; empty = no hooks. Plain HTTP is allowed; the server does not follow redirects.
	URL string `toml:"url"`
	// Key of the signature over each request, as with webhook agents.
	Secret Secret `toml:"secret"`
	// File with that key instead; a line end after it is cut off.
	SecretFile string `toml:"secret_file"`
	// The key before it, until the program has the new one: requests are then signed with both.
	PreviousSecret Secret `toml:"previous_secret"`
	// File with that key instead.
	PreviousSecretFile string `toml:"previous_secret_file"`
	// How long one request may take, with its repetitions; 100ms to 1m.
	Timeout time.Duration `toml:"timeout"`
	// Whether the program decides about [each call of a tool](agents/hooks.md#the-mediator) before it is made.
	Mediator bool `toml:"mediator"`
	// Whether the program decides, after each call of a tool and when the model is done, whether [the work is
	// complete](agents/hooks.md#completion).
	Completion bool `toml:"completion"`
	// Whether the program gets [every event of the loop](agents/hooks.md#the-observer).
	Observer bool `toml:"observer"`
	// What happens [without an answer](agents/hooks.md#without-an-answer): `reject` (the call is not made; a run whose
	// completion cannot be judged is repeated later) or `proceed`.
	OnFailure string `toml:"on_failure"`
}

// Budgets are ceilings for one message. 0 = none. The timeline names the one that stopped a run.
type Budgets struct {
	// Calls of the model; instead of `max_turns`. Then it is asked once more to answer with what it has.
	Turns int `toml:"turns"`
	// Calls of tools; instead of `max_tool_calls`. Then the model is asked once more to answer with what it has.
	ToolCalls int `toml:"tool_calls"`
	// Tokens of the model, read and written. Then it is not asked any more.
	Tokens int `toml:"tokens"`
	// Time of one run, in whole seconds; instead of `wall_clock`. Then the model is not asked any more.
	WallClock time.Duration `toml:"wall_clock"`
	// Cost in the currency of `price`. Then the model is not asked any more.
	Cost  float64      `toml:"cost"`
	Tools []ToolBudget `toml:"tools"`
}

// ToolBudget is the ceiling of one tool, which the timeline calls `tool_calls_<name>`.
type ToolBudget struct {
	// Name of the tool, such as `notes/add_note`.
	Name string `toml:"name" default:"none; required"`
	// How often it may be called for one message.
	Calls int `toml:"calls" default:"none; required"`
}

func defaultHooks() Hooks { return Hooks{Timeout: 5 * time.Second, OnFailure: "reject"} }

func (h *Hooks) validate(p *problems, key string) {
	if !p.written(key) {
		return
	}

	webAddress(p, key+".url", h.URL, "http://127.0.0.1:9000/hooks")
	if h.Secret == "" && h.SecretFile == "" {
		p.add(key+".secret", "is missing, so the program could not tell our requests from forged ones",
			"write a long random text, or its file as secret_file")
	}
	if h.PreviousSecret != "" && h.PreviousSecret == h.Secret {
		p.add(key+".previous_secret", "is the same as secret", "write the key of before, or remove it")
	}
	if !h.Mediator && !h.Completion && !h.Observer {
		p.add(key, "is asked and told nothing", "write mediator = true, completion = true or observer = true")
	}

	within(p, key+".timeout", h.Timeout, 100*time.Millisecond, time.Minute)
	oneOf(p, key+".on_failure", h.OnFailure, "reject", "proceed")
}

func (b *Budgets) validate(p *problems, key string) {
	between(p, key+".turns", b.Turns, 0, 1000)
	between(p, key+".tool_calls", b.ToolCalls, 0, 10_000)
	between(p, key+".tokens", b.Tokens, 0, 1_000_000_000)
	within(p, key+".wall_clock", b.WallClock, 0, 24*time.Hour)
	if b.WallClock > 0 && b.WallClock < time.Second {
		p.add(key+".wall_clock", "counts whole seconds", "write at least 1s, or 0s for no limit")
	}
	if !(b.Cost >= 0) || math.IsInf(b.Cost, 0) || b.Cost > 1e9 {
		p.add(key+".cost", fmt.Sprintf("%v is no cost", b.Cost), "write what one message may cost, such as 0.5")
	}

	names := map[string]bool{}
	for i, one := range b.Tools {
		at := element(key+".tools", i)
		switch {
		case one.Name == "":
			p.add(at+".name", "is missing", `write the name of a tool such as "notes/add_note"`)
		case names[one.Name]:
			p.add(at+".name", fmt.Sprintf("%q is a duplicate", one.Name), "remove one of them")
		}

		names[one.Name] = true
		between(p, at+".calls", one.Calls, 1, 10_000)
	}
}

// validateBudgets refuses a ceiling that is a duplicate, as a budget and as the older key.
func (l *LLM) validateBudgets(p *problems, key string) {
	l.Budgets.validate(p, key+".budgets")
	for _, one := range []struct {
		older, name string
		set         bool
	}{
		{"max_turns", "turns", l.Budgets.Turns > 0},
		{"max_tool_calls", "tool_calls", l.Budgets.ToolCalls > 0},
		{"wall_clock", "wall_clock", l.Budgets.WallClock > 0},
	} {
		if one.set && p.written(key+"."+one.older) {
			p.add(key+"."+one.older, "is set twice: "+one.name+" in [agents.llm.budgets] takes its place", "remove one of them")
		}
	}
}
