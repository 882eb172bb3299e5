package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Target is what programs run tasks on, at `/v1/tasks`. See [tasks.md](tasks.md). One table per target.
type Target struct {
	// Id by which tasks name it: letters, digits and `. _ -` between them.
	ID string `toml:"id" default:"none; required"`
	// Name for people. Without one, the id.
	Label string `toml:"label"`
	// What it is for, for people.
	Description string `toml:"description"`
	// `"agent"` = an agent of this server, of any kind; `"a2a"` = one of kind `remote`, which calls an agent elsewhere;
	// `"pull"` = one of kind `pull`, whose programs get the tasks whose capabilities their labels have.
	Kind string `toml:"kind"`
	// Name of the agent that does the work.
	Agent string `toml:"agent" default:"none; required"`
	// What it can do: a task names what it needs. Words without blanks and commas.
	Capabilities []string `toml:"capabilities"`
	// Classes of resources that it offers, such as `"gpu"`. Without any it takes tasks of every class.
	ResourceClasses []string `toml:"resource_classes"`
	// Further facts about it, as `"name=value"`.
	Metadata []string `toml:"metadata"`
}

// Kinds of a Target.
const (
	TargetAgent = "agent"
	TargetA2A   = "a2a"
	TargetPull  = "pull"
)

// setDefaults fills a table [[targets]] before its keys are read.
func (t *Target) setDefaults() { *t = Target{Kind: TargetAgent} }

var (
	targetID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	// labelWord is what programs may give as one of their labels.
	labelWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+-]{0,62}$`)
)

// neededKind is the kind of agent that a kind of target needs; empty = any.
var neededKind = map[string]string{TargetAgent: "", TargetA2A: "remote", TargetPull: "pull"}

func (c *Config) validateTargets(p *problems) {
	ids := map[string]bool{}
	for i := range c.Targets {
		one, key := &c.Targets[i], element("targets", i)
		switch {
		case !targetID.MatchString(one.ID):
			p.add(key+".id", fmt.Sprintf("%q is not an id", one.ID), `write letters, digits and . _ - between them, such as "gpu"`)
		case ids[one.ID]:
			p.add(key+".id", fmt.Sprintf("%q is a duplicate", one.ID), "write another id")
		}

		ids[one.ID] = true
		one.validateAgent(p, key, c.Agents)
		for name, list := range map[string][]string{".capabilities": one.Capabilities, ".resource_classes": one.ResourceClasses} {
			for j, word := range list {
				if !labelWord.MatchString(word) {
					p.add(element(key+name, j), fmt.Sprintf("%q is not a word", word), "write letters, digits and . _ : / + - between them, at most 63")
				}
			}
		}

		for j, entry := range one.Metadata {
			if name, _, found := strings.Cut(entry, "="); !found || strings.TrimSpace(name) == "" {
				p.add(element(key+".metadata", j), fmt.Sprintf("%q has no name and value", entry), `write "name=value"`)
			}
		}
	}
}

func (t *Target) validateAgent(p *problems, key string, agents []Agent) {
	needed, known := neededKind[t.Kind]
	if !known {
		p.add(key+".kind", fmt.Sprintf("%q is no kind of target", t.Kind), `write "agent", "a2a" or "pull"`)
		return
	}

	at := slices.IndexFunc(agents, func(agent Agent) bool { return strings.EqualFold(agent.Name, t.Agent) })
	switch {
	case t.Agent == "":
		p.add(key+".agent", "is missing, so nothing would do the work", "write the name of one of [[agents]]")
	case at < 0:
		p.add(key+".agent", fmt.Sprintf("there is no agent %q", t.Agent), "write the name of one of [[agents]]")
	case needed != "" && agents[at].Kind != needed:
		p.add(key+".agent", fmt.Sprintf("%q is of kind %q, and a target of kind %q needs one of kind %q", t.Agent, agents[at].Kind, t.Kind, needed),
			`write the name of such an agent, or kind = "agent"`)
	}
}
