// Package bridge makes agents reachable for programs that stand between them and other products: bridges, which fetch
// answers from a durable queue and acknowledge them; connectors, which hand in messages of another messenger and get the
// answers called back; and the conversations of both, with run control, import and export (agent runtime contract,
// section 6). It runs no agents, speaks the protocol of no product, and keeps no state of its own: everything is read from
// rows, so that any node can answer and none loses anything.
package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/task"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/queue"
	"inbox/internal/telemetry"
	"inbox/normalized"
	"inbox/policypart"
)

// Receiver accepts one message durably. Errors are *fault.Fault.
type Receiver interface {
	Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error)
}

// Directory knows the agents; names are compared case-insensitively.
type Directory interface {
	Agent(name string) (exchange.AgentProfile, bool)
}

// Turns reads stored turns.
type Turns interface {
	Turn(ctx context.Context, id string) (exchange.TurnRecord, error)
	// TurnOf returns the newest turn of a principal whose message has the native id; fault.NotFound when there is none.
	TurnOf(ctx context.Context, principal, nativeID string) (exchange.TurnRecord, error)
	Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error)
	Events(ctx context.Context, turnID string, after int64, limit int) ([]exchange.Event, error)
}

// Runs follows and stops turns while they run.
type Runs interface {
	// Wait blocks until the turn ended or waits for somebody; the end of ctx is its error.
	Wait(ctx context.Context, turnID string) (exchange.TurnRecord, error)
	// Cancel ends a turn without answer; fault.Conflict when it ended already.
	Cancel(ctx context.Context, turnID, reason string) (exchange.TurnRecord, error)
	// Follow yields the turn's events after a seq in order, live, and ends after the terminal one.
	Follow(ctx context.Context, turnID string, after int64) iter.Seq2[exchange.Event, error]
}

// Queue keeps clients and what waits for them.
type Queue interface {
	contract.Store
	// Offer keeps an item unless its id was ever queued. There is always room for it: Room was asked before its question
	// was taken.
	Offer(ctx context.Context, item contract.Item) error
	// Room reports whether the queue of a client takes more: contract.ErrFull.
	Room(ctx context.Context, client string) error
	// Item returns an item of a client that was not acknowledged.
	Item(ctx context.Context, client, id string) (contract.Item, bool, error)
	// Register is PutClient with the sealed secret of its callback; empty = the one that it has.
	Register(ctx context.Context, client contract.Client, secret string) error
	// ClientSecret returns a client with that secret.
	ClientSecret(ctx context.Context, id string) (client contract.Client, secret string, found bool, err error)
}

// Sessions keeps conversations. What belongs to another owner is not found.
type Sessions interface {
	CreateSession(ctx context.Context, session exchange.Session) (stored exchange.Session, created bool, err error)
	Session(ctx context.Context, owner, id string) (exchange.Session, bool, error)
	Sessions(ctx context.Context, filter exchange.SessionFilter) ([]exchange.Session, error)
	RenameSession(ctx context.Context, owner, id, title string) error
	TouchSession(ctx context.Context, owner, id string, at time.Time) error
	DeleteSession(ctx context.Context, owner, id string) error
	ChannelSession(ctx context.Context, key contract.SessionKey, fresh exchange.Session) (exchange.Session, error)
	ImportSession(ctx context.Context, session exchange.Session, messages []string) (stored exchange.Session, created bool, err error)
	Transcript(ctx context.Context, owner, id string) ([]string, error)
}

// Sealer keeps the secrets of callbacks unreadable in the database.
type Sealer interface {
	Seal(ctx context.Context, secret []byte, purpose string) (string, error)
	Open(ctx context.Context, sealed, purpose string) ([]byte, error)
}

// WebClient sends requests under the outgoing address policy (internal/safehttp) and follows no redirects.
type WebClient interface {
	Do(request *http.Request) (*http.Response, error)
	// CheckTarget refuses an address that could not be requested now; a name is looked up.
	CheckTarget(ctx context.Context, u *url.URL) error
}

// Blobs keeps the bytes of files that are too large for a message.
type Blobs interface {
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)
}

// Believer decides which signed evidence may be relied on, and what a connector that proved itself may vouch for.
type Believer interface {
	Believe(ctx context.Context, offered identity.Offered, recipient identity.Recipient) identity.Belief
	Covers(evidence identity.Evidence) bool
}

// Options configure an Adapter. All collaborators are required.
type Options struct {
	Domain string // the part after the last @ of our addresses

	Receiver  Receiver
	Directory Directory
	Turns     Turns
	Runs      Runs
	Tokens    bearer.Source
	Queue     Queue
	Sessions  Sessions
	SessionOf func(owner string) contract.Sessions // the map of outside conversations of an owner, for imports
	Tasks     task.Runs                            // notes on runs: who asked to stop them
	Sealer    Sealer
	Web       WebClient // for the callbacks of bridges, which their clients register
	Blobs     Blobs
	Believer  Believer
	Present   func(policypart.Part) policypart.Part // puts the asker's secret into the url of a demand

	Connectors []Connector

	Policy              exchange.Policy // of deliveries; callbacks follow its schedule
	CallbackConcurrency int             // callbacks called at once

	WaitLimit    time.Duration // longest time that a request waits for an answer; default 50 s
	KeepAlive    time.Duration // comment lines on quiet streams; default 15 s
	WriteTimeout time.Duration // a reader that takes longer for one event is dropped; default 10 s
	Logger       *slog.Logger
}

// Limits of a request and defaults of Options.
const (
	maxBodyBytes        = 1 << 20
	maxImportBytes      = 16 << 20
	defaultWaitLimit    = 50 * time.Second // proxies in front of us give up at 60 s
	defaultKeepAlive    = 15 * time.Second
	defaultWriteTimeout = 10 * time.Second
)

// Adapter is the edge of the server for bridges and connectors.
type Adapter struct {
	options    Options
	bridge     contract.Bridge
	tokens     *bearer.Cache
	connectors map[string]*Connector
	archive    Archive
	notifier   notifier
	log        *slog.Logger
}

// New makes an Adapter; the error says what is missing.
func New(options Options) (*Adapter, error) {
	o := &options
	switch {
	case o.Domain == "":
		return nil, errors.New("bridge: Domain is empty")
	case o.Receiver == nil, o.Directory == nil, o.Turns == nil, o.Runs == nil, o.Tokens == nil, o.Queue == nil, o.Sessions == nil,
		o.SessionOf == nil, o.Tasks == nil, o.Sealer == nil, o.Web == nil, o.Blobs == nil, o.Believer == nil, o.Present == nil:
		return nil, errors.New("bridge: a collaborator is missing")
	}
	orDefault(&o.WaitLimit, defaultWaitLimit)
	orDefault(&o.KeepAlive, defaultKeepAlive)
	orDefault(&o.WriteTimeout, defaultWriteTimeout)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	a := &Adapter{
		options: options, bridge: contract.Bridge{Store: options.Queue}, tokens: bearer.NewCache(options.Tokens),
		connectors: map[string]*Connector{}, archive: Archive{options.Turns, options.Sessions}, log: options.Logger,
	}
	for i := range options.Connectors {
		a.connectors[options.Connectors[i].Name] = &options.Connectors[i]
	}
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
		{Method: post, Pattern: "/v1/bridge/register", Handler: a.edge("register", scopePending, a.register)},
		{Method: get, Pattern: "/v1/bridge/client", Handler: a.edge("client", "", a.client)},
		{Method: post, Pattern: "/v1/bridge/send", Handler: a.edge("send", scopeSend, a.send)},
		{Method: post, Pattern: "/v1/bridge/queue", Handler: a.edge("queue", scopeSend, a.enqueue)},
		{Method: get, Pattern: "/v1/bridge/pending", Handler: a.edge("pending", scopePending, a.pending)},
		{Method: get, Pattern: "/v1/bridge/events", Handler: a.edge("events", scopePending, a.events)},
		{Method: get, Pattern: "/v1/bridge/items/{item}", Handler: a.edge("item", scopePending, a.item)},
		{Method: post, Pattern: "/v1/bridge/items/{item}/ack", Handler: a.edge("ack", scopeAck, a.ackOne)},
		{Method: post, Pattern: "/v1/bridge/ack", Handler: a.edge("ack", scopeAck, a.ack)},

		{Method: get, Pattern: "/v1/sessions", Handler: a.edge("sessions", scopeSend, a.listSessions)},
		{Method: post, Pattern: "/v1/sessions", Handler: a.edge("sessions", scopeSend, a.createSession)},
		{Method: get, Pattern: session, Handler: a.edge("sessions", scopeSend, a.getSession)},
		{Method: patch, Pattern: session, Handler: a.edge("sessions", scopeSend, a.renameSession)},
		{Method: remove, Pattern: session, Handler: a.edge("sessions", scopeSend, a.deleteSession)},
		{Method: get, Pattern: session + "/messages", Handler: a.edge("messages", scopeSend, a.sessionMessages)},
		{Method: post, Pattern: session + "/messages", Handler: a.edge("queue_message", scopeSend, a.queueMessage)},
		{Method: get, Pattern: session + "/export", Handler: a.edge("export", scopeSend, a.exportSession)},
		{Method: post, Pattern: "/v1/import", Handler: a.edge("import", scopeSend, a.importSessions)},

		{Method: get, Pattern: run, Handler: a.edge("runs", scopeSend, a.getRun)},
		{Method: get, Pattern: run + "/events", Handler: a.edge("runs", scopeSend, a.runEvents)},
		{Method: post, Pattern: run + "/cancel", Handler: a.edge("runs", scopeSend, a.cancelRun)},
		{Method: post, Pattern: run + "/stop", Handler: a.edge("runs", scopeSend, a.cancelRun)},

		{Method: post, Pattern: "/v1/connectors/{connector}/messages", Handler: a.connectorEdge(a.connectorMessage)},
		{Method: get, Pattern: "/v1/connectors/{connector}/runs/{run}", Handler: a.connectorEdge(a.connectorRun)},
		{Method: post, Pattern: "/v1/connectors/{connector}/runs/{run}", Handler: a.connectorEdge(a.connectorRun)},
	}
}

var requests = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_bridge_requests_total",
	Help: "Requests of bridges, connectors and owners of sessions, by operation and outcome (done, refused, failed).",
}, []string{"operation", "outcome"})

// maxDepth bounds how deep a request nests.
const maxDepth = 64

type handler func(w http.ResponseWriter, r *http.Request, c caller) error

// edge does what comes before every operation: the caller, its scope, and afterwards the count and the error.
func (a *Adapter) edge(operation, scope string, handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := a.verify(r)
		if err == nil {
			err = c.allow(scope)
		}
		if err == nil {
			r = r.WithContext(telemetry.With(r.Context(), "principal", c.owner))
			err = handle(w, r, c)
		}
		finish(w, operation, err)
	})
}

func finish(w http.ResponseWriter, operation string, err error) {
	outcome := "done"
	switch f := fault.Of(classed(err)); {
	case err == nil:
	case f.Kind == fault.Internal, f.Kind == fault.Unavailable:
		outcome = "failed"
	default:
		outcome = "refused"
	}
	requests.WithLabelValues(operation, outcome).Inc()
	if err == nil {
		return
	}
	err = classed(err)
	if fault.Is(err, fault.Unauthenticated) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="bridge"`)
	}
	writeError(w, err)
}

// coded is an error with a code of the agent runtime contract.
type coded interface {
	error
	ErrorCode() string
}

// classed returns the contract's errors their kind.
func classed(err error) error {
	if _, is := errors.AsType[*fault.Fault](err); is || err == nil {
		return err
	}
	known, is := errors.AsType[coded](err)
	switch {
	case !is:
		return err
	case known.ErrorCode() == contract.CodeFull:
		return &fault.Fault{Kind: fault.RateLimited, Public: known.Error(), RetryAfter: time.Minute, Cause: err}
	case strings.HasSuffix(known.ErrorCode(), "_not_found"):
		return fault.Wrap(fault.NotFound, known.Error(), err)
	case strings.HasSuffix(known.ErrorCode(), "_already_started"):
		return fault.Wrap(fault.Conflict, known.Error(), err)
	}
	return fault.Wrap(fault.Malformed, known.Error(), err)
}

// writeError answers with the code of the contract where there is one.
func writeError(w http.ResponseWriter, err error) {
	known, is := errors.AsType[coded](err)
	if !is {
		httpserver.WriteFault(w, err)
		return
	}
	f := fault.Of(err)
	httpserver.SetRetry(w.Header(), f)
	httpserver.WriteJSON(w, httpserver.Status(f.Kind), httpserver.ErrorBody{
		Error: httpserver.ErrorDetail{Code: known.ErrorCode(), Message: f.Public, Field: f.Field},
	})
}

// readBody takes the whole body of a caller that is known.
func readBody(r *http.Request, limit int) ([]byte, error) {
	httpserver.Proven(r)
	body, err := httpserver.ReadBody(r, int64(limit))
	if fault.Is(err, fault.TooLarge) {
		return nil, fault.Newf(fault.TooLarge, "the body is over %d MiB", limit>>20)
	}
	return body, err
}

// readObject reads a body that is a JSON object; none at all is an empty one.
func readObject(r *http.Request) (map[string]any, []byte, error) {
	body, err := readBody(r, maxBodyBytes)
	if err != nil {
		return nil, nil, err
	}
	if bare := bytes.TrimSpace(body); len(bare) == 0 || string(bare) == "null" {
		return map[string]any{}, body, nil
	}
	object, err := decodeObject(body)
	return object, body, err
}

func decodeObject(body []byte) (map[string]any, error) {
	given, err := value.Decode(body, value.Limits{Bytes: maxBodyBytes, Depth: maxDepth})
	if err != nil {
		return nil, fault.Wrap(fault.Malformed, "the body is no JSON", err)
	}
	object, is := value.Object(given)
	if !is {
		return nil, fault.New(fault.Malformed, "the body must be a JSON object")
	}
	return object, nil
}

// text reads the first of the members that is there, trimmed.
func text(object map[string]any, members ...string) string {
	for _, member := range members {
		if found := value.Trim(value.Scalar(object[member])); found != "" {
			return found
		}
	}
	return ""
}

// patience reads how long a request wants to wait: "20s", 20, or true for the longest.
func (a *Adapter) patience(text string) (time.Duration, error) {
	switch text = strings.TrimSpace(text); text {
	case "", "0", "false", "no":
		return 0, nil
	case "true", "yes":
		return a.options.WaitLimit, nil
	}
	if strings.Trim(text, "0123456789") == "" {
		text += "s"
	}
	length, err := time.ParseDuration(text)
	if err != nil || length < 0 {
		return 0, fault.InField("wait", "must be a time such as 30s")
	}
	return min(length, a.options.WaitLimit), nil
}

// wait is the member of the body, or the parameter of the address.
func (a *Adapter) wait(r *http.Request, body map[string]any) (time.Duration, error) {
	if given, there := body["wait"]; there {
		if flag, is := given.(bool); is {
			return a.patience(strconv.FormatBool(flag))
		}
		return a.patience(value.Scalar(given))
	}
	return a.patience(r.URL.Query().Get("wait"))
}

// limitOf reads a number of rows.
func limitOf(given string, most int) (int, error) {
	if given == "" {
		return 0, nil
	}
	number, err := strconv.Atoi(given)
	if err != nil {
		return 0, fault.InField("limit", "must be a number")
	}
	return min(max(number, 1), most), nil
}

func compact(value any) json.RawMessage {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // a value of ours that cannot be encoded
	}
	return encoded
}

var _ coded = (*contract.Error)(nil)

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
			Handler: a.runCallback,
		}},
	}
}

func (a *Adapter) runCallback(ctx context.Context, job queue.Job) error {
	var item exchange.BridgeCallback
	if err := json.Unmarshal([]byte(job.Payload), &item); err != nil {
		return queue.GiveUp("the payload cannot be read", err)
	}
	return queue.Classed(ctx, a.Callback(ctx, item, job.Attempt))
}
