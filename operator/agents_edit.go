package operator

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/operator/setup"
)

// NewAgent is an agent that an operator adds from afar. It names no program and no file of the server: who may choose those could run
// anything as the server's user, or send any file elsewhere.
type NewAgent struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	Backend  string `json:"backend,omitempty"`  // address of the webhook, the model's provider or the agent card
	Provider string `json:"provider,omitempty"` // of kind llm
	Model    string `json:"model,omitempty"`    // of kind llm
	Access   string `json:"access,omitempty"`
	Summary  string `json:"summary,omitempty"`
}

// NewAgentKinds are the kinds that a NewAgent may have.
func NewAgentKinds() (names []string) {
	for _, kind := range config.Kinds {
		if kind.Name != "command" {
			names = append(names, kind.Name)
		}
	}
	return names
}

// FileChange is how the file of the settings would change.
type FileChange struct {
	File     string // empty = the server has no file
	Before   string
	After    string
	Table    string // the lines of a new agent
	Writable bool   // the server may write the file
}

// table is the agent as it is written.
func (o *Operator) table(n NewAgent) (config.AgentTable, error) {
	kind := config.KindNamed(n.Kind)
	switch {
	case n.Kind == "command":
		return config.AgentTable{}, fault.New(fault.Forbidden, "an agent that is a program is added on the server itself: inbox agents add")
	case kind.Name == "":
		return config.AgentTable{}, fault.InField("kind", "must be one of "+strings.Join(NewAgentKinds(), ", "))
	case kind.BackEnd != "" && !kind.Optional && n.Backend == "":
		return config.AgentTable{}, fault.InField("backend", "is missing: "+kind.Asks)
	case kind.Model && n.Model == "":
		return config.AgentTable{}, fault.InField("model", "is missing")
	}

	table := config.AgentTable{Name: n.Name, Domain: o.furtherDomain(), Kind: n.Kind, Access: n.Access, Summary: n.Summary}
	if kind.BackEnd != "" {
		table.Backend = n.Backend
	}
	if kind.Model {
		table.Provider, table.Model = n.Provider, n.Model
	}
	return table, nil
}

// furtherDomain is how the file names the domain of this operator's agents; empty = that at the top.
func (o *Operator) furtherDomain() string {
	if c := o.options.Current(); c.HostedBy != "" {
		return c.Domain
	}
	return ""
}

func (o *Operator) agentFile(ctx context.Context) setup.AgentFile {
	c := o.options.Current()
	file := setup.AgentFile{Path: c.File, Environ: c.Environment, Apply: func() error { return o.reloaded(ctx) }}
	if o.options.Check != nil {
		file.Check = func(settings *config.Config) error { return o.options.Check(ctx, settings) }
	}
	return file
}

// PlanAgent shows what AddAgent would write. It changes nothing. The change has the table alone where the server has no file.
func (o *Operator) PlanAgent(ctx context.Context, n NewAgent) (FileChange, error) {
	table, err := o.table(n)
	if err != nil {
		return FileChange{}, err
	}
	change := FileChange{Table: table.Text()}
	file := o.agentFile(ctx)
	if file.Path == "" {
		return change, nil
	}

	before, _, path, err := file.Read()
	if err != nil {
		return change, err
	}
	if kind := config.KindNamed(table.Kind); kind.NeedsSecret {
		table.SecretFile = filepath.Join(filepath.Dir(path), table.Name+".secret")
		change.Table = table.Text()
	}
	after, err := config.AddAgent(path, before, file.Environ, table)
	if err != nil {
		return change, inTheWay(err)
	}
	if err := file.CheckAdded(path, before, table); err != nil {
		return change, inTheWay(err)
	}
	change.File, change.Before, change.After, change.Writable = path, before, after, mayReplace(path)
	return change, nil
}

// AddAgent writes a new agent at the end of the file of the settings and lets the server read it. Errors are fault.Malformed,
// fault.Conflict, fault.Forbidden for a file that the server may not write, and fault.NotFound where there is none.
func (o *Operator) AddAgent(ctx context.Context, n NewAgent) (setup.Added, error) {
	table, err := o.table(n)
	if err != nil {
		return setup.Added{}, err
	}
	added, err := o.agentFile(ctx).Add(table)
	if err != nil {
		return setup.Added{}, inTheWay(err)
	}
	return added, nil
}

// PlanRemoval shows what RemoveAgent would write. It changes nothing.
func (o *Operator) PlanRemoval(ctx context.Context, name string) (FileChange, error) {
	entry, err := configuredAgent(o.options.Current(), name)
	if err != nil {
		return FileChange{}, err
	}
	file := o.agentFile(ctx)
	before, _, path, err := file.Read()
	if err != nil {
		return FileChange{}, err
	}
	after, err := config.RemoveAgent(path, before, file.Environ, entry.Name, o.furtherDomain())
	if err != nil {
		return FileChange{}, inTheWay(err)
	}
	return FileChange{File: path, Before: before, After: after, Writable: mayReplace(path)}, nil
}

// RemoveAgent takes an agent out of the file of the settings and lets the server read it. Its messages and keys stay. Errors are those of
// AddAgent.
func (o *Operator) RemoveAgent(ctx context.Context, name string) (setup.Removed, error) {
	entry, err := configuredAgent(o.options.Current(), name)
	if err != nil {
		return setup.Removed{}, err
	}
	removed, err := o.agentFile(ctx).Remove(entry.Name, o.furtherDomain())
	if err != nil {
		return setup.Removed{}, inTheWay(err)
	}
	return removed, nil
}

func (o *Operator) reloaded(ctx context.Context) error {
	if o.Node == nil {
		return nil
	}
	if _, err := o.Node.Reload(ctx); err != nil {
		return fault.Wrap(fault.Conflict, "the server does not read the changed file, so the file is as it was: "+fault.InWords(err), err)
	}
	return nil
}

// inTheWay makes a fault of what keeps the file from being changed: the operator wrote the settings and may read about them.
func inTheWay(err error) error {
	if _, is := errors.AsType[*fault.Fault](err); is {
		return err
	}
	if errors.Is(err, fs.ErrPermission) {
		return fault.Wrap(fault.Forbidden, "the server may not write the file of the settings: "+err.Error(), err)
	}
	return fault.Wrap(fault.Malformed, err.Error(), err)
}

// mayReplace reports whether a file can be put in the place of another: the directory takes new files.
func mayReplace(path string) bool {
	file, err := os.CreateTemp(filepath.Dir(path), ".inbox-*")
	if err != nil {
		return false
	}
	return errors.Join(file.Close(), os.Remove(file.Name())) == nil
}
