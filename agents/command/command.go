// Package command is the agent that is a local program: it runs once per message, reads the message as JSON on its
// standard input and writes the answer to its standard output. There is no shell in between. The package keeps no
// state and retries nothing by itself; it only reports whether a retry may help. docs/agents/command.md describes it for
// the people who write such programs.
package command

import (
	"context"
	"iter"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Values of Options.Output.
const (
	OutputJSON = "json" // a NormalizedResponse
	OutputText = "text" // plain text; white space alone is deliberately no answer
)

// Defaults and limits of Options.
const (
	DefaultMaxOutputBytes = 8 << 20
	MaxStderrBytes        = 64 << 10 // how much of the end of the standard error is kept for the log
)

// DefaultEnvironment are the variables that a program gets when Options.Environment is nil.
var DefaultEnvironment = []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// reserved begins the variables that this package sets, and the settings of the server, which hold its secrets.
const reserved = "INBOX_"

// Options configure an Agent. Program is required.
type Options struct {
	Program        string       // path, or name that is looked up in PATH once, by New
	Arguments      []string     // given as they are
	Environment    []string     // "NAME" = from the server's environment, "NAME=value" = this value; nil = DefaultEnvironment
	Directory      string       // where the program runs; empty = where the server runs
	MemoryBytes    int64        // of each process; zero = no limit. Linux only: New refuses it elsewhere
	MaxOutputBytes int64        // of the standard output; zero = DefaultMaxOutputBytes
	Output         string       // OutputJSON or OutputText; empty = OutputJSON
	Scratch        *Scratch     // where files of runs lie; nil = in the system's directory for temporary files
	Logger         *slog.Logger // gets what programs write to their standard error; nil = slog.Default

	Limits normalized.Limits // of the answer's content; zero = normalized.DefaultLimits
}

// Agent runs one program. It is safe for concurrent use; as many programs run as there are calls.
type Agent struct {
	options Options
}

// New checks the options and fills in the defaults. Its faults are fault.Malformed and name the setting.
func New(options Options) (*Agent, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return nil, err
	}

	found, err := exec.LookPath(options.Program)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return nil, &fault.Fault{Kind: fault.Malformed, Field: "program", Public: "must be a program that this server may run", Cause: err}
	}

	options.Program = found
	return &Agent{options}, nil
}

func (o Options) withDefaults() Options {
	if o.Environment == nil {
		o.Environment = DefaultEnvironment
	}
	if o.MaxOutputBytes == 0 {
		o.MaxOutputBytes = DefaultMaxOutputBytes
	}
	if o.Output == "" {
		o.Output = OutputJSON
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Limits == (normalized.Limits{}) {
		o.Limits = normalized.DefaultLimits()
	}

	return o
}

func (o Options) check() error {
	switch {
	case o.Program == "":
		return fault.InField("program", "is required: the path of the program that answers")
	case o.MemoryBytes < 0 || o.MaxOutputBytes < 0:
		return fault.InField("memory_bytes", "limits must not be negative")
	case o.MemoryBytes > 0 && !limitsMemory:
		return fault.InField("memory_bytes", "works on Linux only: leave it out and limit the program by other means")
	case o.Output != OutputJSON && o.Output != OutputText:
		return fault.InField("output", `must be "json" or "text"`)
	}

	for _, entry := range o.Environment {
		name, _, _ := strings.Cut(entry, "=")
		if name == "" || strings.HasPrefix(name, reserved) || strings.ContainsRune(entry, 0) {
			return fault.InField("environment", `entries are NAME or NAME=value, and no name begins with "`+reserved+`"`)
		}
	}

	if o.Directory == "" {
		return nil
	}
	if info, err := os.Stat(o.Directory); err != nil || !info.IsDir() {
		return fault.InField("directory", "must be a directory that is there")
	}

	return nil
}

// Handle runs the program for the turn and yields its answer. Errors are faults: with Permanent another attempt cannot
// succeed, without it a retry may. The end of ctx, which is the time limit, is returned as its own error. When the
// sequence ends, nothing of the program's process group is left.
func (a *Agent) Handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(yield func(normalized.Delta, error) bool) {
		started := time.Now()
		response, err := a.ask(ctx, turn)
		observe(started, err)
		if err != nil {
			yield(normalized.Delta{}, err)
			return
		}
		yield(normalized.Delta{Kind: normalized.DeltaResponse, Response: &response}, nil)
	}
}

func (a *Agent) ask(ctx context.Context, turn agents.Turn) (normalized.Response, error) {
	files, err := a.place(ctx, turn)
	if err != nil {
		return normalized.Response{}, err
	}
	defer files.remove()

	input, err := request(turn, files)
	if err != nil {
		return normalized.Response{}, upstream.NotUsable(err)
	}

	ended, err := a.run(ctx, turn, input, files)
	if len(ended.stderr) > 0 {
		a.options.Logger.WarnContext(ctx, "the program of an agent wrote to its standard error",
			"agent", turn.Agent, "turn", turn.ID, "stderr", string(ended.stderr), "dropped_bytes", ended.dropped)
	}
	if err != nil {
		return normalized.Response{}, err
	}
	return a.answer(ctx, ended, turn, files)
}
