// Package tasks lets programs run work on the targets of this server and read what became of it (agent runtime contract,
// section 7). A run is a turn of the engine with a row of its own, stored in one transaction: it has the promises of every message,
// and nothing about it is kept twice. What a run may be, and who may see it, is agents/runtime/task; the work is done by agents. The
// package keeps nothing and starts no goroutines.
package tasks

import (
	"context"
	"errors"
	"net/http"
	"time"

	"inbox/agents/runtime/task"
	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
	"inbox/policypart"
)

// Turns reads stored turns and their events.
type Turns interface {
	Turn(ctx context.Context, id string) (exchange.TurnRecord, error)
	Events(ctx context.Context, turnID string, after int64, limit int) ([]exchange.Event, error)
}

// Rows reads runs of tasks as they were begun.
type Rows interface {
	TaskRun(ctx context.Context, id string) (exchange.TaskRun, bool, error)
	// TaskRuns lists newest first.
	TaskRuns(ctx context.Context, filter exchange.TaskRunFilter) ([]exchange.TaskRun, error)
}

// Target is something on which tasks run.
type Target struct {
	ID, Label, Description string
	Kind                   string // agent, a2a or pull
	Agent                  string // name of the agent that does the work
	Capabilities           []string
	ResourceClasses        []string
	Metadata               map[string]string
}

// KindPull is the kind of targets whose agent gives tasks to programs by their labels.
const KindPull = "pull"

// Options configure an Adapter. All collaborators are required.
type Options struct {
	Domain  string          // the part after the last @ of our addresses
	Targets func() *Targets // what programs may run tasks on now; nil = nothing

	Receiver  exchange.Receiver
	Directory exchange.Directory
	Turns     Turns
	Runs      exchange.Runs
	Rows      Rows
	Tokens    exchange.Tokens
	Blobs     exchange.Blobs

	// Present puts the asker's secret into the url of a demand.
	Present func(policypart.Part) policypart.Part
	// FileURL is where a file of an answer can be read; empty = nowhere.
	FileURL func(reply exchange.Reply, part normalized.Part) string

	WaitLimit time.Duration // longest time that a request waits for the end of a run; default 50 s
}

// defaultWaitLimit is below the 60 s after which proxies give up.
const defaultWaitLimit = 50 * time.Second

// Adapter is the face of tasks. It is safe for concurrent use.
type Adapter struct {
	access  *access
	runs    *runs
	options Options
}

// Targets are what programs may run tasks on. They do not change.
type Targets struct {
	byID     map[string]Target
	declared []map[string]any // canonical
}

// NewTargets checks targets; its error names the one that cannot be.
func NewTargets(list []Target) (*Targets, error) {
	t, declared := &Targets{byID: map[string]Target{}}, make([]any, 0, len(list))
	for _, target := range list {
		t.byID[target.ID] = target
		declared = append(declared, target.declaration())
	}

	var err error
	t.declared, err = task.NormalizeTargets(declared)
	return t, err
}

// New makes an Adapter; its error names what is missing.
func New(options Options) (*Adapter, error) {
	o := options
	switch {
	case o.Domain == "":
		return nil, errors.New("tasks: Domain is empty")
	case o.Receiver == nil, o.Directory == nil, o.Turns == nil, o.Runs == nil, o.Rows == nil, o.Tokens == nil, o.Blobs == nil,
		o.Present == nil, o.FileURL == nil:
		return nil, errors.New("tasks: a collaborator is missing")
	}
	if options.WaitLimit <= 0 {
		options.WaitLimit = defaultWaitLimit
	}

	if options.Targets == nil {
		none := &Targets{}
		options.Targets = func() *Targets { return none }
	}

	return &Adapter{
		access: &access{tokens: bearer.NewCache(options.Tokens), targets: options.Targets}, runs: &runs{options: options}, options: options,
	}, nil
}

// dispatcher runs tasks for one request.
func (a *Adapter) dispatcher(c caller, original []byte) task.Dispatcher {
	return task.Dispatcher{Declared: a.options.Targets().declared, Executions: request{a.runs, c, original}}
}

// declaration is the target in the contract's form.
func (t Target) declaration() map[string]any {
	metadata := map[string]any{"agent": t.Agent}
	for name, text := range t.Metadata {
		metadata[name] = text
	}
	return map[string]any{
		"id": t.ID, "label": t.Label, "kind": t.Kind, "description": t.Description, "metadata": metadata,
		"capabilities": listOf(t.Capabilities), "resource_classes": listOf(t.ResourceClasses),
	}
}

func listOf(words []string) []any {
	list := make([]any, len(words))
	for i, word := range words {
		list[i] = word
	}
	return list
}

// Routes are the endpoints.
func (a *Adapter) Routes() []httpserver.Route {
	const get, post = http.MethodGet, http.MethodPost
	return []httpserver.Route{
		{Method: get, Pattern: "/v1/targets", Handler: a.access.edge(a.listTargets)},
		{Method: post, Pattern: "/v1/tasks", Handler: a.access.edge(a.run)},
		{Method: get, Pattern: "/v1/tasks", Handler: a.access.edge(a.list)},
		{Method: get, Pattern: "/v1/tasks/{run}", Handler: a.access.edge(a.get)},
		{Method: get, Pattern: "/v1/tasks/{run}/result", Handler: a.access.edge(a.envelope)},
		{Method: post, Pattern: "/v1/tasks/{run}/cancel", Handler: a.access.edge(a.cancel)},
	}
}

// ChannelName is the name of the channel.
const ChannelName = "task"

// Module returns the channel as a node runs it.
func (a *Adapter) Module() exchange.Module {
	return exchange.Module{Name: ChannelName, ReceivedVia: normalized.ViaA2A, Channel: a, Routes: a.Routes()}
}

var _ exchange.Channel = (*Adapter)(nil)

// Plan has no destinations: who runs a task fetches its result.
func (*Adapter) Plan(context.Context, exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{}, nil
}

// Deliver is never asked, because Plan names no destination.
func (*Adapter) Deliver(context.Context, exchange.Delivery) (exchange.DeliveryReceipt, error) {
	return exchange.DeliveryReceipt{}, fault.GiveUp("results of tasks are fetched by who ran them", nil)
}
