package console

import (
	"context"
	"net/http"
	"strconv"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

// Tokens finds the operator's tokens.
type Tokens interface {
	// TokenByHash finds a token by the lower-case hex SHA-256 of its text; revoked ones too.
	TokenByHash(ctx context.Context, hash string) (exchange.Token, bool, error)
}

// Turns finds messages.
type Turns interface {
	Turn(ctx context.Context, id string) (exchange.TurnRecord, error)
	Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error)
	// Events gives at most limit timeline rows of a turn with a higher seq than after, in order.
	Events(ctx context.Context, turnID string, after int64, limit int) ([]exchange.Event, error)
}

// Held decides about messages that wait for the operator.
type Held interface {
	// Release lets the agent answer: fault.NotFound without such a turn, fault.Conflict when it is not held any more.
	Release(ctx context.Context, turnID string) error
	// Drop refuses the message with the reason; errors as those of Release.
	Drop(ctx context.Context, turnID, reason string) error
}

// Records are what the server noted about trust: decisions and who is linked with whom.
type Records interface {
	AuditRecords(ctx context.Context, filter exchange.AuditFilter) ([]exchange.AuditRecord, error)
	// People lists newest first; before is the id of the last person of the page before, limit counts persons.
	People(ctx context.Context, before string, limit int) ([]exchange.PersonIdentity, error)
	// Unlink takes an identity out of its person; fault.NotFound when it is not linked.
	Unlink(ctx context.Context, principal string) error
}

// APIOptions configure the operator API; all are required.
type APIOptions struct {
	Tokens  Tokens
	Turns   Turns
	Held    Held
	Retries Retries
	Records Records

	Approvals operator.Approvals
	Answers   Answers // optional

	ToolRecords  ToolRecords
	ToolRequests ToolRequests
	Lists        Lists
	Suppressions Suppressions
}

// API is what operators' programs call, below /api/v1. Every call needs a bearer token of scope exchange.TokenAdmin
// (RFC 6750); errors are JSON as everywhere (httpserver.ErrorBody).
type API struct{ APIOptions }

// NewAPI makes the operator API.
func NewAPI(options APIOptions) *API { return &API{options} }

// Routes are all calls. Each does what a command does: inbox held, inbox approvals, inbox tool-requests, inbox people, inbox audit, inbox show.
func (a *API) Routes() []httpserver.Route {
	return append(a.listRoutes(), []httpserver.Route{
		a.route(http.MethodGet, "/api/v1/held", a.listHeld),
		a.route(http.MethodPost, "/api/v1/held/{turn}/release", a.release),
		a.route(http.MethodPost, "/api/v1/held/{turn}/drop", a.drop),
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
		a.route(http.MethodPost, "/api/v1/turns/{turn}/retry", a.retry),
		a.route(http.MethodPost, "/api/v1/turns/retry", a.retryFailed),
		a.route(http.MethodDelete, "/api/v1/replies/{reply}", a.deleteAnswer),
		a.route(http.MethodPut, "/api/v1/replies/{reply}", a.editAnswer),
		a.route(http.MethodPut, "/api/v1/replies/{reply}/pin", a.pinAnswer(true)),
		a.route(http.MethodDelete, "/api/v1/replies/{reply}/pin", a.pinAnswer(false)),
		a.route(http.MethodGet, "/api/v1/people", a.listPeople),
		a.route(http.MethodDelete, "/api/v1/people", a.unlink),
		a.route(http.MethodGet, "/api/v1/audit", a.listAudit),
		a.route(http.MethodGet, "/api/v1/mail/suppressed", a.listSuppressed),
		a.route(http.MethodDelete, "/api/v1/mail/suppressed", a.unsuppress),
	}...)
}

// call answers with a value that is written as JSON; nil = 204.
type call func(w http.ResponseWriter, r *http.Request) (any, error)

func (a *API) route(method, pattern string, do call) httpserver.Route {
	return httpserver.Route{Method: method, Pattern: pattern, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		token, err := a.authorize(w, r)
		if err != nil {
			httpserver.WriteFault(w, err)
			return
		}
		answer, err := do(w, r.WithContext(context.WithValue(r.Context(), tokenKey{}, token)))
		switch {
		case err != nil:
			httpserver.WriteFault(w, err)
		case answer == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			httpserver.WriteJSON(w, http.StatusOK, answer)
		}
	})}
}

const (
	defaultPage = 50
	maxPage     = 500
)

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
