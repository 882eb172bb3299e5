// Package console is what operators call, and the pages on which people answer what an agent asks back. It renders on the server, needs
// no script, holds no state and decides nothing itself.
package console

import (
	"context"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
	"inbox/operator/held"
	"inbox/operator/operation"
	"inbox/operator/takeover"
)

// API is what operators' programs call, below /api/v1. Every call needs a bearer token of an operator with the role of the call
// (RFC 6750, see RoleOf); errors are JSON as everywhere (httpserver.ErrorBody).
type API struct {
	operator *operator.Operator
	chat     OperatorChat // nil = the operator cannot talk to agents here
}

// OperatorChat lets the operator whose token was checked talk to an agent. Errors that it returns were not answered yet.
type OperatorChat interface {
	ServeOperator(w http.ResponseWriter, r *http.Request, agent string, token exchange.Token) error
}

// NewAPI makes the operator API.
func NewAPI(o *operator.Operator) *API { return &API{operator: o} }

// WithChat lets operators talk to agents.
func (a *API) WithChat(chat OperatorChat) *API {
	a.chat = chat
	return a
}

// Routes are all calls. Each does what a command does: inbox held, inbox approvals, inbox tool-requests, inbox people, inbox audit, inbox show, inbox waiting, inbox retry.
func (a *API) Routes() []httpserver.Route {
	return slices.Concat(a.agentRoutes(), a.arrivalRoutes(), a.listRoutes(), a.chatRoutes(), a.mailRoutes(), routes(a, a.operator.Takeovers, takeover.Operations()), routes(a, a.operator.Held, held.Operations()), a.simulateRoutes(), a.statisticsRoutes(), []httpserver.Route{
		a.route(http.MethodGet, "/api/v1/approvals", a.listApprovals),
		a.route(http.MethodGet, "/api/v1/approvals/{approval}", a.approval),
		a.route(http.MethodPost, "/api/v1/approvals/{approval}/approve", a.approve),
		a.route(http.MethodPost, "/api/v1/approvals/{approval}/deny", a.deny),
		a.route(http.MethodPost, "/api/v1/approvals/{approval}/edit", a.editReply),
		a.route(http.MethodGet, "/api/v1/tool-requests", a.listToolRequests),
		a.route(http.MethodGet, "/api/v1/tool-requests/{request}", a.toolRequest),
		a.route(http.MethodPost, "/api/v1/tool-requests/{request}/submit", a.submitToolResult),
		a.route(http.MethodPost, "/api/v1/tool-requests/{request}/cancel", a.cancelToolRequest),
		a.route(http.MethodGet, "/api/v1/turns/{turn}", a.turn),
		a.route(http.MethodGet, "/api/v1/turns/{turn}/result", a.result),
		a.route(http.MethodGet, "/api/v1/turns/{turn}/original", a.original),
		a.route(http.MethodPost, "/api/v1/turns/{turn}/retry", a.retry),
		a.route(http.MethodPost, "/api/v1/turns/retry", a.retryFailed),
		a.route(http.MethodGet, "/api/v1/waiting", a.waiting),
		a.route(http.MethodGet, "/api/v1/failed", a.listFailed),
		a.route(http.MethodPost, "/api/v1/deliveries/retry", a.retryDead(a.operator.Deliveries.RetryDead)),
		a.route(http.MethodPost, "/api/v1/deliveries/{delivery}/retry", a.retryDelivery),
		a.route(http.MethodGet, "/api/v1/deliveries/{delivery}", a.delivery),
		a.route(http.MethodPost, "/api/v1/deliveries/{delivery}/cancel", a.cancelDelivery),
		a.route(http.MethodGet, "/api/v1/demands", a.listDemands),
		a.route(http.MethodPost, "/api/v1/demands/{demand}/withdraw", a.withdrawDemand),
		a.route(http.MethodGet, "/api/v1/jobs", a.listJobs),
		a.route(http.MethodPost, "/api/v1/jobs/retry", a.retryDead(a.operator.Jobs.RetryDead)),
		a.route(http.MethodPost, "/api/v1/jobs/{job}/retry", a.retryJob),
		a.route(http.MethodDelete, "/api/v1/jobs/{job}", a.removeJob),
		a.route(http.MethodGet, "/api/v1/breakers", a.listBreakers),
		a.route(http.MethodDelete, "/api/v1/breakers", a.closeBreaker),
		a.route(http.MethodDelete, "/api/v1/replies/{reply}", a.deleteAnswer),
		a.route(http.MethodPut, "/api/v1/replies/{reply}", a.editAnswer),
		a.route(http.MethodPut, "/api/v1/replies/{reply}/pin", a.pinAnswer(true)),
		a.route(http.MethodDelete, "/api/v1/replies/{reply}/pin", a.pinAnswer(false)),
		a.route(http.MethodGet, "/api/v1/people", a.listPeople),
		a.route(http.MethodDelete, "/api/v1/people", a.unlink),
		a.route(http.MethodGet, "/api/v1/people/preview", a.previewPerson),
		a.route(http.MethodGet, "/api/v1/people/export", a.exportPerson),
		a.route(http.MethodPost, "/api/v1/people/erase", a.erasePerson),
		a.route(http.MethodGet, "/api/v1/erasures", a.listErasures),
		a.route(http.MethodGet, "/api/v1/erasures/{erasure}", a.erasure),
		a.route(http.MethodGet, "/api/v1/usage", a.usage),
		a.route(http.MethodGet, "/api/v1/audit", a.listAudit),
		a.route(http.MethodGet, "/api/v1/sessions", a.listSessions),
		a.route(http.MethodDelete, "/api/v1/sessions/{session}", a.endSession),
		a.route(http.MethodGet, "/api/v1/connectors", a.listConnectors),
		a.route(http.MethodPost, "/api/v1/reload", a.reload),
		a.route(http.MethodPost, "/api/v1/stop", a.stop),
		a.route(http.MethodGet, "/api/v1/pause", a.pause),
		a.route(http.MethodPut, "/api/v1/pause", a.beginPause),
		a.route(http.MethodDelete, "/api/v1/pause", a.endPause),
		a.route(http.MethodPost, "/api/v1/actors/{actor}/key", a.rotateActorKey),
		a.route(http.MethodPut, "/api/v1/agents/{agent}/move", a.moveAgent),
		a.route(http.MethodDelete, "/api/v1/agents/{agent}/move", a.unmoveAgent),
		a.route(http.MethodGet, "/api/v1/mail/suppressed", a.listSuppressed),
		a.route(http.MethodDelete, "/api/v1/mail/suppressed", a.unsuppress),
		a.route(http.MethodGet, "/api/v1/notices", a.listNotices),
		a.route(http.MethodPost, "/api/v1/notices/test", a.testNotices),
	})
}

const chatPattern = "/api/v1/agents/{agent}/chat"

// chatRoutes answers by itself: with a stream, where that is wanted.
func (a *API) chatRoutes() []httpserver.Route {
	if a.chat == nil {
		return nil
	}
	needed := RoleOf(http.MethodPost, chatPattern)
	return []httpserver.Route{{Method: http.MethodPost, Pattern: chatPattern, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		token, err := a.authorize(w, r, needed)
		if err == nil {
			err = a.record(r, token, chatPattern)
		}
		if err == nil {
			err = a.chat.ServeOperator(w, r, httpserver.Param(r, "agent"), token)
		}
		if err != nil && r.Context().Err() == nil {
			httpserver.WriteFault(w, err)
		}
	})}}
}

// call answers with a value that is written as JSON; nil = 204.
type call func(w http.ResponseWriter, r *http.Request) (any, error)

// written is the value of a call that wrote its answer itself.
type written struct{}

// routes are those of the operations of a subject.
func routes[S any](a *API, subject S, operations []operation.Operation[S]) (list []httpserver.Route) {
	for _, one := range operations {
		list = append(list, a.serve(one.Method, one.Path, one.NeededRole(), one.Changes(), func(w http.ResponseWriter, r *http.Request) (any, error) {
			return one.Serve(w, r, subject, operation.Caller{By: caller(r), Owner: owner(r)})
		}))
	}
	return list
}

func (a *API) route(method, pattern string, do call) httpserver.Route {
	return a.serve(method, pattern, RoleOf(method, pattern), method != http.MethodGet && !unrecorded[pattern], do)
}

// serve checks the role of the caller and records what will change before it is done: an act without its record must not be.
func (a *API) serve(method, pattern string, needed exchange.Role, changes bool, do call) httpserver.Route {
	return httpserver.Route{Method: method, Pattern: pattern, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		token, err := a.authorize(w, r, needed)
		if err == nil && changes {
			err = a.record(r, token, pattern)
		}
		if err != nil {
			httpserver.WriteFault(w, err)
			return
		}

		answer, err := do(w, r.WithContext(context.WithValue(r.Context(), tokenKey{}, token)))
		switch {
		case err != nil:
			httpserver.WriteFault(w, err)
		case answer == written{}:
		case answer == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			httpserver.WriteJSON(w, http.StatusOK, answer)
		}
	})}
}

// page reads one row more than the page has, and returns the page with the cursor of the following one.
func page[T any](r *http.Request, cursor func(T) string, read func(limit int) ([]T, error)) (exchange.List[T], error) {
	size, err := limit(r)
	if err != nil {
		return exchange.List[T]{}, err
	}
	found, err := read(size + 1)
	return exchange.CutList(found, size, cursor), err
}

// whole is a list that the settings or a bound of the server keep short: it is one page.
func whole[T any](found []T, err error) (any, error) { return exchange.NewList(found, ""), err }

const realm = `Bearer realm="operator API"`

// authorize lets tokens of operators in that have the role. A peer's token is good for agents and nothing else.
func (a *API) authorize(w http.ResponseWriter, r *http.Request, needed exchange.Role) (exchange.Token, error) {
	shown := bearer.Of(r)
	if shown == "" {
		w.Header().Set("WWW-Authenticate", realm)
		return exchange.Token{}, fault.New(fault.Unauthenticated, "an operator's bearer token is needed; see: inbox tokens create --admin")
	}

	hash := bearer.Hash(shown)
	token, found, err := a.operator.Tokens.ByHash(r.Context(), hash)
	if err != nil {
		return token, err
	}
	// The store found the hash already; comparing again in constant time keeps a store that matches loosely out of it.
	if !found || !token.Valid(time.Now()) || subtle.ConstantTimeCompare([]byte(token.Hash), []byte(hash)) != 1 {
		w.Header().Set("WWW-Authenticate", realm+`, error="invalid_token"`)
		return token, fault.New(fault.Unauthenticated, "the bearer token is not valid")
	}

	if role := token.Role(); role < needed {
		w.Header().Set("WWW-Authenticate", realm+`, error="insufficient_scope", scope="`+needed.String()+`"`)
		if role == exchange.RoleNone {
			return token, fault.Newf(fault.Forbidden, "the bearer token is a peer's; the operator API needs one of: inbox tokens create --%s", needed)
		}
		return token, fault.Newf(fault.Forbidden, "this needs the role %s, and the token has the role %s; see: inbox tokens create --%s", needed, role, needed)
	}

	return token, nil
}

// unrecorded are calls that change nothing but what the caller has read: a program that reads on would push everything else off the trail.
var unrecorded = map[string]bool{"/api/v1/threads/{thread}/read": true, "/api/v1/unread": true}

// record writes what an operator is about to change.
func (a *API) record(r *http.Request, token exchange.Token, pattern string) error {
	act := exchange.OperatorAct(exchange.OperatorPrincipal(token.Name), r.Method, pattern, r.URL.Path)
	act.Agent = httpserver.Param(r, "agent")
	return a.operator.Audit.Record(r.Context(), act)
}

// MayRead reports by its error that a request has no token of an operator; nil when it has.
func (a *API) MayRead(r *http.Request) error {
	_, err := a.authorize(discarded{}, r, exchange.RoleRead)
	return err
}

// discarded takes the challenge of a refusal that is answered in another way.
type discarded struct{ http.ResponseWriter }

func (discarded) Header() http.Header { return http.Header{} }

// tokenKey is the context key of the token with which an operator calls.
type tokenKey struct{}

// caller names who calls, for the record.
func caller(r *http.Request) string {
	token, _ := r.Context().Value(tokenKey{}).(exchange.Token)
	return exchange.OperatorPrincipal(token.Name)
}

const (
	defaultPage = 50
	maxPage     = 500
)

// renamedCursor refuses the name that the cursor of some lists had: a client that sent it would read the first page over and over.
func renamedCursor(query url.Values) error {
	if query.Has("after") {
		return fault.InField("after", `is called "before" now, as in every list: send the "next" of the page before`)
	}
	return nil
}

// limit reads how many rows are wanted.
func limit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultPage, nil
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 || number > maxPage {
		return 0, fault.InField("limit", "must be a number from 1 to "+strconv.Itoa(maxPage))
	}
	return number, nil
}

// readOptional reads a body that may be empty.
func readOptional(w http.ResponseWriter, r *http.Request, limit int64, into any, hint string) error {
	return operation.ReadBody(w, r, limit, into, false, hint)
}

const (
	maxReasonBytes = 500
	maxReasonBody  = 4 << 10
)

// reason reads an optional {"reason": "…"}.
func reason(w http.ResponseWriter, r *http.Request) (string, error) {
	var wanted operation.Reason
	if err := readOptional(w, r, maxReasonBody, &wanted, `send nothing, or {"reason":"…"}`); err != nil {
		return "", err
	}
	if len(wanted.Reason) > maxReasonBytes || !utf8.ValidString(wanted.Reason) {
		return "", fault.InField("reason", "must be at most 500 bytes of text")
	}
	return wanted.Reason, nil
}

// listApprovals takes status=open (the default) or status=all.
func (a *API) listApprovals(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	all, err := withClosed(query)
	if err != nil {
		return nil, err
	}

	cursor := func(a exchange.Approval) string { return a.ID }
	return page(r, cursor, func(limit int) ([]exchange.Approval, error) {
		return a.operator.Approvals.Approvals(r.Context(), exchange.ApprovalFilter{
			Agent: query.Get("agent"), All: all, Before: query.Get("before"), Limit: limit,
		})
	})
}

func (a *API) approval(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Approvals.Approval(r.Context(), httpserver.Param(r, "approval"))
}

// approve takes {"digest": "…"} of what was read.
func (a *API) approve(w http.ResponseWriter, r *http.Request) (any, error) {
	var read digestBody
	if err := readOptional(w, r, maxDecisionBytes, &read, `send {"digest":"…"} of the approval that you read`); err != nil {
		return nil, err
	}
	return a.operator.Approvals.Approve(r.Context(), httpserver.Param(r, "approval"), read.Digest, caller(r))
}

// deny takes an optional {"reason": "…"}, which the asker is told.
func (a *API) deny(w http.ResponseWriter, r *http.Request) (any, error) {
	why, err := reason(w, r)
	if err != nil {
		return nil, err
	}
	return a.operator.Approvals.Deny(r.Context(), httpserver.Param(r, "approval"), caller(r), why)
}

// withClosed reports whether status=all is asked for; status=open is the default.
func withClosed(query url.Values) (bool, error) {
	status := orElse(query.Get("status"), "open")
	if status != "open" && status != "all" {
		return false, fault.InField("status", `must be "open" or "all"`)
	}
	return status == "all", nil
}

// maxEditBytes bounds the body of an edit: the text of an answer, with the escapes of JSON.
const maxEditBytes = 4 << 20

// editReply takes {"text": "…"}.
func (a *API) editReply(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted textBody
	if err := readOptional(w, r, maxEditBytes, &wanted, `send {"text":"…"}`); err != nil {
		return nil, err
	}
	return a.operator.Approvals.EditReply(r.Context(), httpserver.Param(r, "approval"), caller(r), wanted.Text)
}

// listToolRequests takes status=open (the default) or status=all, agent, turn, tool, after (a time), before and limit.
func (a *API) listToolRequests(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	all, err := withClosed(query)
	if err != nil {
		return nil, err
	}

	filter := exchange.ToolRequestFilter{Agent: query.Get("agent"), TurnID: query.Get("turn"), ToolName: query.Get("tool"), All: all, Before: query.Get("before")}
	if text := query.Get("after"); text != "" {
		if filter.CreatedAfter, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return nil, fault.InField("after", "must be a time such as 2026-01-02T15:04:05Z")
		}
	}

	return page(r, exchange.ToolRequest.Cursor, func(limit int) ([]exchange.ToolRequest, error) {
		filter.Limit = limit
		return a.operator.Tools.Requests(r.Context(), filter)
	})
}

func (a *API) toolRequest(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Tools.Request(r.Context(), httpserver.Param(r, "request"))
}

// submitToolResult takes {"success", "result" or "error", "metadata"}.
func (a *API) submitToolResult(_ http.ResponseWriter, r *http.Request) (any, error) {
	body, err := httpserver.ReadBody(r, operator.MaxToolResult)
	if err != nil {
		return nil, err
	}
	return a.operator.Tools.Submit(r.Context(), httpserver.Param(r, "request"), caller(r), body)
}

func (a *API) cancelToolRequest(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Tools.Cancel(r.Context(), httpserver.Param(r, "request"), caller(r))
}
