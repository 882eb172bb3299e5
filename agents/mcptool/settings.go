package mcptool

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// DefaultTimeout is how long one call of a tool may take.
const DefaultTimeout = 60 * time.Second

// Server is one [[agents.mcp]] entry: a program to start, or an address to call.
type Server struct {
	Name string // namespace of its tools: a-z, 0-9, "_" and "-", a letter first, at most 32 bytes

	Command     string   // program; looked up in PATH when it has no slash
	Arguments   []string // of the program
	Environment []string // "NAME" passes our variable on, "NAME=value" sets one; beside PATH, HOME, LANG and TMPDIR nothing else gets through
	Directory   string   // where the program runs; empty = where we run

	URL   string // http or https, trusted as written; without user, password and fragment
	Token string // bearer token for URL

	Timeout    time.Duration // of one call, from the first wait for a connection; zero = DefaultTimeout
	Tools      []string      // globs of the tools to use; none = all
	Preview    []string      // globs of the tools that need approval
	Forbidden  []string      // globs of the tools that are neither shown nor run; wins over all others
	AtMostOnce []string      // globs of the tools that must not run a second time, not even after a crash
}

// KeepFunc stores a file that a tool returned and says where. An error costs only the file, not the answer.
type KeepFunc func(ctx context.Context, name, mediaType string, content []byte) (*normalized.BytesRef, error)

// Options serve all servers of a Source; zero values take the defaults.
type Options struct {
	Client *safehttp.Client // required where a server has a URL
	Keep   KeepFunc         // nil: files up to 64 KiB stand in the answer itself, larger ones are only named
	Log    *slog.Logger     // nil = slog.Default

	Listed func() // called when the tools of a server are known or have changed, by several servers at once; nil = nothing

	Version string // of this program, told to servers; "0"

	MaxTools       int // of one server, after the globs; 128
	MaxAnswerBytes int // of one JSON-RPC message, with the files in it; 8 MiB. What is larger costs the call an error
	MaxResultBytes int // of text and structured content in a result; 1 MiB. What is larger is cut
	MaxConcurrent  int // calls under way at one server; 16

	ConnectTimeout time.Duration // until a server has listed its tools; 60 s, since a first start may download it
	ReconnectWait  time.Duration // how long a call and a first list wait for a connection; 10 s
	RefreshEvery   time.Duration // the list is read again even if the server announces nothing; 10 min
	StopGrace      time.Duration // a program has it after the end of its input, and once more after SIGTERM; 2 s
	RetryMin       time.Duration // pause before the second attempt to connect, doubled for each further one; 1 s
	RetryMax       time.Duration // the longest pause; 1 min
}

func (o Options) withDefaults() Options {
	o.MaxTools = cmp.Or(o.MaxTools, 128)
	o.MaxAnswerBytes = cmp.Or(o.MaxAnswerBytes, 8<<20)
	o.MaxResultBytes = cmp.Or(o.MaxResultBytes, 1<<20)
	o.MaxConcurrent = cmp.Or(o.MaxConcurrent, 16)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 60*time.Second)
	o.ReconnectWait = cmp.Or(o.ReconnectWait, 10*time.Second)
	o.RefreshEvery = cmp.Or(o.RefreshEvery, 10*time.Minute)
	o.StopGrace = cmp.Or(o.StopGrace, 2*time.Second)
	o.RetryMin = cmp.Or(o.RetryMin, time.Second)
	o.RetryMax = cmp.Or(o.RetryMax, time.Minute)
	o.Version = cmp.Or(o.Version, "0")
	if o.Log == nil {
		o.Log = slog.Default()
	}

	return o
}

func (o Options) validate() error {
	for _, limit := range []int{o.MaxTools, o.MaxAnswerBytes, o.MaxResultBytes, o.MaxConcurrent} {
		if limit < 0 {
			return fault.InField("mcp", "limits must not be negative")
		}
	}
	return nil
}

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// reserved are namespaces that mean something else in declarations.
var reserved = []string{"client", "host"}

// Validate says which setting is wrong, as a fault.Malformed that names it.
func (s Server) Validate() error {
	switch {
	case !namePattern.MatchString(s.Name):
		return fault.InField("name", `must be a short name such as "files": a-z, 0-9, "_" and "-", a letter first, at most 32`)
	case slices.Contains(reserved, s.Name):
		return fault.InField("name", `must not be "client" or "host": these names mean tools of other kinds`)
	case s.Command == "" && s.URL == "":
		return fault.InField("command", "is required, or url: the program to start or the address to call")
	case s.Command != "" && s.URL != "":
		return fault.InField("url", "the server has both: write command or url, not both")
	case s.Timeout < 0:
		return fault.InField("timeout", "must not be negative")
	}

	if err := s.validatePatterns(); err != nil {
		return err
	}
	if s.URL != "" {
		_, err := s.destination()
		return err
	}

	return s.validateEnvironment()
}

// lists returns the lists of patterns by their keys.
func (s Server) lists() map[string][]string {
	return map[string][]string{"tools": s.Tools, "preview": s.Preview, "forbidden": s.Forbidden, "at_most_once": s.AtMostOnce}
}

func (s Server) validatePatterns() error {
	lists := s.lists()
	for _, key := range slices.Sorted(maps.Keys(lists)) {
		for _, pattern := range lists[key] {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return fault.InField(key, `must be names or patterns such as "read_*"; "*", "?" and "[a-z]" stand for other letters`)
			}
		}
	}
	return nil
}

func (s Server) validateEnvironment() error {
	if s.Token != "" {
		return fault.InField("token", "is for a server with a url; give a program its secrets in environment")
	}
	for _, entry := range s.Environment {
		if name, _, _ := strings.Cut(entry, "="); name == "" || strings.ContainsRune(entry, 0) {
			return fault.InField("environment", `must be names of variables that are passed on, or "NAME=value"`)
		}
	}
	return nil
}

// destination returns the only host and port that the operator's URL opens.
func (s Server) destination() (string, error) {
	return upstream.Destination(s.URL, "https://tools.example.org/mcp", "use token")
}
