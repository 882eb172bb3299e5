// Package bridge makes agents reachable for programs that stand between them and other products: bridges, which fetch
// answers from a durable queue and acknowledge them; connectors, which hand in messages of another messenger and get the
// answers called back; and the conversations of both, with run control, import and export (agent runtime contract,
// section 6). It runs no agents, speaks the protocol of no product, and keeps no state of its own: everything is read from
// rows, so that any node can answer and none loses anything.
package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/httpserver"
	"inbox/internal/queue"
	"inbox/normalized"
)

// Adapter is the face of bridges and connectors: what a node starts, serves and calls. Its parts own their state, and each
// knows only those that it needs. It is safe for concurrent use and starts no goroutines of its own.
type Adapter struct {
	*site
	access      *access
	sessions    *sessions
	runs        *runs
	messages    *messages
	transcripts *transcripts
	queues      *queues
	connectors  *connectors
	outbox      *outbox
}

// site is what every part knows: the options, our addresses and agents, and the sessions that are here.
type site struct {
	options Options
}

// New makes an Adapter; its error names what is missing.
func New(options Options) (*Adapter, error) {
	o := &options
	switch {
	case o.Domain == "":
		return nil, errors.New("bridge: Domain is empty")
	case o.Receiver == nil, o.Directory == nil, o.Turns == nil, o.Runs == nil, o.Tokens == nil, o.Queue == nil, o.Sessions == nil,
		o.SessionOf == nil, o.Notes == nil, o.Sealer == nil, o.Web == nil, o.Validator == nil, o.Present == nil:
		return nil, errors.New("bridge: a collaborator is missing")
	}
	orDefault(&o.WaitLimit, defaultWaitLimit)
	orDefault(&o.KeepAlive, defaultKeepAlive)
	orDefault(&o.WriteTimeout, defaultWriteTimeout)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}

	if o.Connectors == nil {
		o.Connectors = func() []Connector { return nil }
	}
	s, bridge := &site{options}, contract.Bridge{Store: options.Queue}

	a := &Adapter{site: s, access: &access{s, bearer.NewCache(options.Tokens)}, sessions: &sessions{s}, runs: &runs{s}}
	a.messages = &messages{site: s, access: a.access, sessions: a.sessions, runs: a.runs}
	a.transcripts = &transcripts{site: s, sessions: a.sessions, archive: Archive{options.Turns, options.Sessions}}
	a.queues = &queues{site: s, access: a.access, bridge: bridge}
	a.connectors = &connectors{site: s, sessions: a.sessions, runs: a.runs, messages: a.messages}
	a.outbox = &outbox{site: s, bridge: bridge}
	return a, nil
}

func orDefault(value *time.Duration, otherwise time.Duration) {
	if *value <= 0 {
		*value = otherwise
	}
}

// Routes are the endpoints.
func (a *Adapter) Routes() []httpserver.Route {
	const get, post, patch, remove = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	session, run := "/v1/sessions/{session}", "/v1/runs/{run}"
	return []httpserver.Route{
		{Method: post, Pattern: "/v1/bridge/register", Handler: a.access.edge("register", scopePending, a.queues.register)},
		{Method: get, Pattern: "/v1/bridge/client", Handler: a.access.edge("client", "", a.queues.client)},
		{Method: post, Pattern: "/v1/bridge/send", Handler: a.access.edge("send", scopeSend, a.messages.send)},
		{Method: post, Pattern: "/v1/bridge/queue", Handler: a.access.edge("queue", scopeSend, a.queues.enqueue)},
		{Method: get, Pattern: "/v1/bridge/pending", Handler: a.access.edge("pending", scopePending, a.queues.pending)},
		{Method: get, Pattern: "/v1/bridge/events", Handler: a.access.edge("events", scopePending, a.queues.events)},
		{Method: get, Pattern: "/v1/bridge/items/{item}", Handler: a.access.edge("item", scopePending, a.queues.item)},
		{Method: post, Pattern: "/v1/bridge/items/{item}/ack", Handler: a.access.edge("ack", scopeAck, a.queues.ackOne)},
		{Method: post, Pattern: "/v1/bridge/ack", Handler: a.access.edge("ack", scopeAck, a.queues.ack)},

		{Method: get, Pattern: "/v1/sessions", Handler: a.access.edge("sessions", scopeSend, a.sessions.listSessions)},
		{Method: post, Pattern: "/v1/sessions", Handler: a.access.edge("sessions", scopeSend, a.sessions.createSession)},
		{Method: get, Pattern: session, Handler: a.access.edge("sessions", scopeSend, a.sessions.getSession)},
		{Method: patch, Pattern: session, Handler: a.access.edge("sessions", scopeSend, a.sessions.renameSession)},
		{Method: remove, Pattern: session, Handler: a.access.edge("sessions", scopeSend, a.sessions.deleteSession)},
		{Method: get, Pattern: session + "/messages", Handler: a.access.edge("messages", scopeSend, a.transcripts.sessionMessages)},
		{Method: post, Pattern: session + "/messages", Handler: a.access.edge("queue_message", scopeSend, a.messages.queueMessage)},
		{Method: get, Pattern: session + "/export", Handler: a.access.edge("export", scopeSend, a.transcripts.exportSession)},
		{Method: post, Pattern: "/v1/import", Handler: a.access.edge("import", scopeSend, a.transcripts.importSessions)},

		{Method: get, Pattern: run, Handler: a.access.edge("runs", scopeSend, a.runs.getRun)},
		{Method: get, Pattern: run + "/events", Handler: a.access.edge("runs", scopeSend, a.runs.runEvents)},
		{Method: post, Pattern: run + "/cancel", Handler: a.access.edge("runs", scopeSend, a.runs.cancelRun)},
		{Method: post, Pattern: run + "/stop", Handler: a.access.edge("runs", scopeSend, a.runs.cancelRun)},

		{Method: post, Pattern: "/v1/connectors/{connector}/messages", Handler: a.connectors.connectorEdge(a.connectors.connectorMessage)},
		{Method: get, Pattern: "/v1/connectors/{connector}/runs/{run}", Handler: a.connectors.connectorEdge(a.connectors.connectorRun)},
		{Method: post, Pattern: "/v1/connectors/{connector}/runs/{run}", Handler: a.connectors.connectorEdge(a.connectors.connectorRun)},
	}
}

// ChannelName is the name of the channel.
const ChannelName = "bridge"

// Module returns the channel as a node runs it. Callbacks are as durable as deliveries, and those of one session are in order.
func (a *Adapter) Module() exchange.Module {
	schedule := a.options.Policy.Schedule
	return exchange.Module{
		Name: ChannelName, ReceivedVia: normalized.ViaA2A, Channel: a, Policy: a.options.Policy, Routes: a.Routes(),
		Jobs: []exchange.Job{{
			Kind:    exchange.BridgeCallbackKind,
			Options: queue.KindOptions{Concurrency: a.options.CallbackConcurrency, Schedule: schedule, MaxAttempts: len(schedule) + 1},
			Handler: a.outbox.runCallback,
		}},
	}
}

var (
	_ exchange.Channel   = (*Adapter)(nil)
	_ exchange.Historian = (*Adapter)(nil)
)

// The face. Each method is described where its part has it.

// Plan implements exchange.Channel: the queue or the callback of an answer.
func (a *Adapter) Plan(ctx context.Context, reply exchange.Reply) (exchange.Plan, error) {
	return a.outbox.Plan(ctx, reply)
}

// Deliver makes one attempt to bring an answer to its client.
func (a *Adapter) Deliver(ctx context.Context, delivery exchange.Delivery) (exchange.DeliveryReceipt, error) {
	return a.outbox.Deliver(ctx, delivery)
}

// Awaits reports whether the caller of a question waits for the answer, which no queue and no callback brings.
func (*Adapter) Awaits(kept json.RawMessage) bool { return readRoute(kept).Way == wayResponse }

// Late implements exchange.Historian: whether a turn begins a session into which an earlier conversation was imported.
func (a *Adapter) Late(turn exchange.TurnRecord) bool { return a.transcripts.Late(turn) }

// Ancestors implements exchange.Historian: what was imported.
func (a *Adapter) Ancestors(ctx context.Context, turn exchange.TurnRecord) ([]normalized.HistoricalMessage, error) {
	return a.transcripts.Ancestors(ctx, turn)
}

// Wake tells that the queue of a client changed, on this node or another; an empty id stands for any client.
func (a *Adapter) Wake(client string) { a.queues.Wake(client) }
