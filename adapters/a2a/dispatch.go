package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
	"inbox/policypart"
)

var calls = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_calls_total",
	Help: "Calls of our agents to agents elsewhere, by outcome (completed, input_required, failed, retry, given_up).",
}, []string{"outcome"})

// Client sends what leaves this server; *safehttp.Client is one. A blocking send takes as long as the other agent works,
// usually up to a minute. A client with shorter time limits works, too: the message is then sent again with the same id,
// for the task at once.
type Client interface {
	Do(request *http.Request) (*http.Response, error)
	Get(ctx context.Context, address string, options safehttp.GetOptions) (*http.Response, error)
}

// Signer makes signed attestations in the name of this server.
type Signer interface {
	Sign(ctx context.Context, evidence identity.Evidence) (identity.Evidence, error)
}

// CallerOptions configure a Caller. Client, Signer and Domain are required.
type CallerOptions struct {
	Client Client
	Signer Signer
	Domain string                     // ours: the issuer of the evidence
	Tokens func(domain string) string // the bearer token that we show to agents of a domain; empty = none; may be nil
	// Assert signs who calls, for one request to the agent named by audience where no token is configured; may be nil.
	Assert    func(ctx context.Context, agent, audience string) (string, error)
	Blobs     exchange.Blobs // optional: without it files that are not in the message itself are left out
	AllowHTTP bool           // development: domains with a port are asked over plain http
	TimeLimit time.Duration  // of one call with all its polls; default 5 min
}

const (
	defaultCallLimit = 5 * time.Minute
	firstPoll        = 500 * time.Millisecond
	maxPoll          = 10 * time.Second
	maxCallBytes     = 1 << 20 // of one response on the wire
)

// Caller calls agents of other servers on behalf of ours. It is safe for concurrent use.
type Caller struct {
	codec
	options CallerOptions
	issuer  string
	peers   *peerCache
}

// NewCaller makes a Caller; its error names the option that is missing.
func NewCaller(options CallerOptions) (*Caller, error) {
	if options.Client == nil || options.Signer == nil {
		return nil, errors.New("a2a: a caller needs Client and Signer")
	}
	issuer, err := identity.CanonicalIssuer(options.Domain)
	if err != nil {
		return nil, err
	}
	options.TimeLimit = cmp.Or(options.TimeLimit, defaultCallLimit)
	return &Caller{codec: codec{blobs: options.Blobs}, options: options, issuer: issuer, peers: newPeerCache()}, nil
}

// Call sends one message to the agent d.To and waits for the end of its task, until ctx or TimeLimit. A refusal, a
// failure and a demand of the other agent are responses: failed with the code dispatch:refused, or input_required with
// the demand as policy part, never completed. Errors are *fault.Fault, classed by RetryIn and GiveUp; a repeat has the
// same message id, so that the other side recognises it.
func (c *Caller) Call(ctx context.Context, d exchange.Dispatch) (normalized.Response, error) {
	ctx, cancel := context.WithTimeout(log.AttachLogger(ctx, quiet), c.options.TimeLimit)
	defer cancel()
	response, err := c.call(ctx, d)
	calls.WithLabelValues(callOutcome(response, err)).Inc()
	return response, err
}

func callOutcome(response normalized.Response, err error) string {
	switch {
	case err == nil:
		return response.Outcome()
	case fault.Of(err).Permanent:
		return "given_up"
	}
	return "retry"
}

func (c *Caller) call(ctx context.Context, d exchange.Dispatch) (normalized.Response, error) {
	to, err := identity.ParseAddress(d.To)
	if err != nil {
		return normalized.Response{}, fault.GiveUp("want an address @agent@domain", err)
	}

	found, err := c.resolve(ctx, to)
	if err != nil {
		return normalized.Response{}, err
	}

	message, err := c.message(ctx, d, found.address)
	if err != nil {
		return normalized.Response{}, err
	}

	w := c.wire(to.Domain, found, d.Agent)
	result, err := w.send(ctx, message, false)
	if w.oldVersion(err) {
		found.version = a2av0.Version
		c.peers.put(to.String(), found)
		w = c.wire(to.Domain, found, d.Agent)
		result, err = w.send(ctx, message, false)
	}
	if errors.Is(err, safehttp.ErrTimeout) && ctx.Err() == nil {
		if message, err = c.message(ctx, d, found.address); err == nil { // evidence is good for one use
			result, err = w.send(ctx, message, true)
		}
	}
	if err != nil && w.long {
		return c.unread(), nil
	}
	if err != nil {
		c.peers.drop(to.String()) // it may have moved
		return w.refusal(to, err)
	}

	return c.outcome(ctx, w, to, result)
}

// message is what goes over the wire. A message without anything that can be sent is not sent.
func (c *Caller) message(ctx context.Context, d exchange.Dispatch, to string) (*a2a.Message, error) {
	parts, err := c.renderParts(ctx, c.sendable(d.Parts), true)
	switch {
	case err != nil:
		return nil, fault.RetryIn(0, "a file of the message cannot be read", err)
	case len(parts) == 0:
		return nil, fault.GiveUp("the message has nothing that can be sent to an agent", nil)
	}

	evidence, err := c.vouch(ctx, d, to)
	if err != nil {
		return nil, fault.RetryIn(0, "the evidence for the other agent cannot be signed", err)
	}

	return &a2a.Message{
		ID: d.ID, ContextID: d.ThreadID, Role: a2a.MessageRoleUser, Parts: parts,
		Extensions: []string{identity.EvidenceExtension},
		Metadata:   map[string]any{mentionableKey: map[string]any{"agent_chain": d.Chain, evidenceKey: evidence}},
	}, nil
}

// sendable leaves out files that only the blob store has when there is none.
func (c *Caller) sendable(parts []normalized.Part) []normalized.Part {
	if c.blobs != nil {
		return parts
	}

	var list []normalized.Part
	for _, part := range parts {
		if ref := part.BytesRef; ref == nil || ref.Kind == normalized.BytesInline || ref.URL != "" {
			list = append(list, part)
		}
	}
	return list
}

// methodAgent is the method of evidence about one of our agents that calls another.
const methodAgent = "urn:mentionable:auth:a2a-agent:v0.1"

// maxVouched leaves room for the proof of the transport on the other side.
const maxVouched = identity.MaxEvidence - 2

// vouch signs who calls and on whose behalf, for the agent that is called and no one else. The agent alone comes first: a
// receiver that does not let us delegate drops every piece with on_behalf_of whole. Then the agent for its user, and
// each identity of the user that we verified ourselves; what others vouched for is not ours to sign.
func (c *Caller) vouch(ctx context.Context, d exchange.Dispatch, to string) ([]identity.Evidence, error) {
	agent := identity.Evidence{
		Subject: c.agentSubject(d.Agent), Method: methodAgent, Assurance: identity.AssuranceAgent,
		Audience: identity.Audience{to},
		Source:   &identity.Source{Transport: "a2a", Connector: c.issuer},
	}

	pieces := []identity.Evidence{agent}
	if speaker := d.Sender.Speaker(); speaker != nil {
		agent.OnBehalfOf = []string{speaker.Subject}
		pieces = append(pieces, agent)
	}

	for _, known := range d.Sender.Own() {
		if c.verifiedHere(known) && len(pieces) < maxVouched {
			pieces = append(pieces, identity.Evidence{
				Subject: known.Subject, Method: known.Method, Assurance: known.Assurance, Audience: agent.Audience, Source: agent.Source,
			})
		}
	}

	for i := range pieces {
		signed, err := c.options.Signer.Sign(ctx, pieces[i])
		if err != nil {
			return nil, err
		}
		pieces[i] = signed
	}

	return pieces, nil
}

// agentSubject is the address of the agent's card.
func (c *Caller) agentSubject(name string) string {
	return "https://" + c.issuer + "/.well-known/agent-card/" + url.PathEscape(name)
}

// verifiedHere reports whether a proof was checked inside our boundary.
func (c *Caller) verifiedHere(e identity.Evidence) bool {
	issuer, err := identity.CanonicalIssuer(e.Issuer)
	return err == nil && issuer == c.issuer && (e.Proof.Type == identity.ProofTransport || e.Proof.Type == identity.ProofBearerToken)
}

// CodeRefused is the code of a response of which the other agent did nothing.
const CodeRefused = "dispatch:refused"

const stateKey = "dev.mentionable.state" // of a presented demand: a bearer secret

// outcome waits for the end of the task and reads its answer.
func (c *Caller) outcome(ctx context.Context, w *wire, to identity.Address, result a2a.SendMessageResult) (normalized.Response, error) {
	task, isTask := result.(*a2a.Task)
	if !isTask {
		message, _ := result.(*a2a.Message)
		if message == nil {
			return normalized.Response{}, fault.GiveUp("the other agent answers in an unknown form", nil)
		}
		return c.completed(ctx, message.Parts)
	}

	task, err := w.finish(ctx, task)
	if err != nil && w.long {
		return c.unread(), nil
	}
	if err != nil {
		return w.refusal(to, err)
	}

	switch task.Status.State {
	case a2a.TaskStateCompleted:
		return c.completed(ctx, results(task))
	case a2a.TaskStateInputRequired, a2a.TaskStateAuthRequired:
		return c.demanded(ctx, task)
	}

	return refused(to, textOf(task.Status.Message)), nil
}

// unread is an answer that is too long to be read.
func (c *Caller) unread() normalized.Response {
	return c.bounded(normalized.Response{Status: normalized.StatusCompleted}, normalized.Left{Rest: true})
}

// finish polls a task that works.
func (w *wire) finish(ctx context.Context, task *a2a.Task) (*a2a.Task, error) {
	for pause := firstPoll; !task.Status.State.Terminal() && !interrupted(task.Status.State); pause = min(2*pause, maxPoll) {
		if err := clock.Sleep(ctx, pause); err != nil {
			return nil, err
		}

		polled, err := w.get(ctx, task.ID)
		switch {
		case err == nil && polled.ID == task.ID:
			task = polled
		case err == nil:
			return nil, fault.GiveUp("the other agent answers with another task", nil)
		case w.passing(err): // the task goes on there; only ctx ends the wait
		default:
			return nil, err
		}
	}
	return task, nil
}

// passing reports whether the failure of a poll may be over at the next one.
func (w *wire) passing(err error) bool {
	return w.status == http.StatusTooManyRequests || w.status >= http.StatusInternalServerError ||
		w.status == 0 && !errors.Is(err, safehttp.ErrRefused) && !errors.Is(err, safehttp.ErrTooLarge)
}

// results are the parts of all artifacts, or what was said where there are none.
func results(task *a2a.Task) (parts a2a.ContentParts) {
	for _, artifact := range task.Artifacts {
		if artifact != nil {
			parts = append(parts, artifact.Parts...)
		}
	}
	if len(parts) == 0 && task.Status.Message != nil {
		return task.Status.Message.Parts
	}
	return parts
}

// completed is an answer; one without content is a deliberate silence.
func (c *Caller) completed(ctx context.Context, parts a2a.ContentParts) (normalized.Response, error) {
	read, err := c.readParts(ctx, parts)
	switch {
	case err != nil:
		return normalized.Response{}, err
	case len(read) == 0:
		return normalized.Response{Silent: true, Status: normalized.StatusCompleted}, nil
	}
	return c.bounded(normalized.Response{Parts: read, Status: normalized.StatusCompleted}, normalized.Left{}), nil
}

// readParts turns foreign parts into ours, by the rules for messages.
func (c *Caller) readParts(ctx context.Context, parts a2a.ContentParts) ([]normalized.Part, error) {
	if c.blobs == nil {
		parts = withoutLarge(parts)
	}

	read, err := normalizeParts(ctx, parts, c.blobs)
	if _, malformed := errors.AsType[*problem](err); malformed {
		return nil, fault.GiveUp("the other agent answers in an unknown form", err)
	}
	if err != nil {
		return nil, fault.RetryIn(0, "a file of the answer cannot be kept", err)
	}

	response := normalized.Response{Parts: read}
	response.Clean()
	return response.Parts, nil
}

// withoutLarge says of files that would need the blob store that they are left out.
func withoutLarge(parts a2a.ContentParts) (list a2a.ContentParts) {
	for _, part := range parts {
		if part != nil && len(part.Raw()) > normalized.MaxInlineBytes {
			part = a2a.NewTextPart(normalized.Left{Parts: 1}.String())
		}
		list = append(list, part)
	}
	return list
}

// bounded cuts an answer to the size that the asking turn stores, and replaces an invalid answer (message contract, section 5).
func (c *Caller) bounded(response normalized.Response, left normalized.Left) normalized.Response {
	limits := normalized.DefaultLimits()
	limits.AllowHTTP = c.options.AllowHTTP
	response = response.FitBytes(limits, left, limits.Trace)

	for _, broken := range normalized.Violations(normalized.Message{ReceivedTrace: &response}, limits) {
		if strings.HasPrefix(broken.Field, "received_trace") { // the message around it is of no interest
			return failed("dispatch:invalid", "The answer breaks the rules and cannot be passed on.")
		}
	}
	return response
}

func failed(code, text string) normalized.Response {
	return normalized.Response{
		Status: normalized.StatusFailed, Parts: []normalized.Part{normalized.Text(text)},
		Error: &normalized.ResponseError{Code: code, Message: text},
	}
}

func refused(to identity.Address, said string) normalized.Response {
	text := to.String() + " did not answer."
	if said != "" {
		text = to.String() + " did not answer: " + said
	}
	return failed(CodeRefused, text)
}

// demanded is a question or a demand of the other agent. The demand goes on without the secret that would let its
// reader answer in our name.
func (c *Caller) demanded(ctx context.Context, task *a2a.Task) (normalized.Response, error) {
	message := task.Status.Message
	if message == nil {
		message = &a2a.Message{}
	}

	policy := policyIn(message.Metadata)
	if policy != nil {
		part := normalized.Part{Kind: normalized.PartPolicy, Policy: policy}
		return c.bounded(normalized.Response{Parts: []normalized.Part{part}, Status: normalized.StatusInputRequired}, normalized.Left{}), nil
	}

	read, err := c.readParts(ctx, message.Parts)
	if err != nil {
		return normalized.Response{}, err
	}

	if len(read) == 0 {
		read = []normalized.Part{normalized.Text("The other agent waits for more input.")}
	}

	return c.bounded(normalized.Response{Parts: read, Status: normalized.StatusInputRequired}, normalized.Left{}), nil
}

// policyIn reads metadata.mentionable.policy; nil when there is no demand that can be shown.
func policyIn(metadata map[string]any) *policypart.Part {
	mentionable, _ := metadata[mentionableKey].(map[string]any)
	if mentionable["policy"] == nil {
		return nil
	}
	encoded, err := json.Marshal(mentionable["policy"])
	if err != nil || len(encoded) > maxMetadataBytes {
		return nil
	}

	var part policypart.Part
	if json.Unmarshal(encoded, &part) != nil || part.Kind == "" || strings.TrimSpace(part.Message) == "" {
		return nil
	}

	delete(part.Data, stateKey)
	return &part
}
