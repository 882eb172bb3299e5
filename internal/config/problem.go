package config

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// Problem is one thing wrong with the settings.
type Problem struct {
	Place   string // "inbox.toml:12" or the name of the environment variable; empty for a default
	Key     string // as written in the documentation; empty for broken TOML
	Message string // what is wrong
	Remedy  string // what to write instead; may be empty
}

// Error returns one line: place, key, what is wrong, what to do.
func (p *Problem) Error() string {
	var line strings.Builder
	for _, part := range []string{p.Place, p.Key} {
		if part != "" {
			line.WriteString(part + ": ")
		}
	}

	line.WriteString(p.Message)
	if p.Remedy != "" {
		line.WriteString("; " + p.Remedy)
	}
	return line.String()
}

// Problem makes the error of a setting that one of the server's parts refuses. Its place is found by reading the file and the variables
// again: settings that were changed since, or come from a program, have none.
func (c *Config) Problem(key, message string) *Problem {
	problem := &Problem{Key: key, Message: message}
	if _, found, err := loadWith(c.File, c.Environment); err == nil {
		own := found.under(c)
		problem.Place, problem.Key = own.place(key), own.renamed(key)
	}
	return problem
}

// problems collects everything that is wrong, so that one start shows all of it.
type problems struct {
	origins map[string]string // key path → place
	found   []error

	metadata []netip.Prefix // federation.metadata_addresses

	domains map[string]int          // table [[domains]] of each further domain; nil = there are none
	agents  map[string][]int        // tables [[agents]] of each domain
	rename  func(key string) string // from a key of a domain's settings to that of the file; nil = they are the same
}

func newProblems() *problems { return &problems{origins: map[string]string{}} }

// add notes a problem at a key; the place is where the key, or the table around it, was written.
func (p *problems) add(key, message, remedy string) {
	p.found = append(p.found, &Problem{Place: p.place(key), Key: p.renamed(key), Message: message, Remedy: remedy})
}

func (p *problems) renamed(key string) string {
	if p.rename == nil {
		return key
	}
	return p.rename(key)
}

func (p *problems) place(key string) string {
	key = p.renamed(key)
	for key != "" {
		if place, ok := p.origins[key]; ok {
			return place
		}
		key = parent(key)
	}
	return ""
}

func (p *problems) written(key string) bool { return p.origins[p.renamed(key)] != "" }

func (p *problems) err() error { return errors.Join(p.found...) }

// parent cuts the last part off a key path: "agents[0].name" → "agents[0]" → "agents" → "".
func parent(key string) string {
	return key[:max(0, strings.LastIndexAny(key, ".["))]
}

func join(table, key string) string {
	if table == "" {
		return key
	}
	return table + "." + key
}

func element(list string, index int) string { return list + "[" + strconv.Itoa(index) + "]" }
