package console

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

type approvalList struct {
	Approvals []exchange.Approval `json:"approvals"`
	Next      string              `json:"next,omitempty"` // value of "before" for the following page
}

// listApprovals takes status=open (the default) or status=all.
func (a *API) listApprovals(_ http.ResponseWriter, r *http.Request) (any, error) {
	size, err := limit(r)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	status := orElse(query.Get("status"), "open")
	if status != "open" && status != "all" {
		return nil, fault.InField("status", `must be "open" or "all"`)
	}
	found, err := a.Approvals.Approvals(r.Context(), exchange.ApprovalFilter{
		Agent: query.Get("agent"), All: status == "all", Before: query.Get("before"), Limit: size + 1,
	})
	found, next := exchange.NextPage(found, size, func(a exchange.Approval) string { return a.ID })
	return approvalList{Approvals: listed(found), Next: next}, err
}

func (a *API) approval(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.Approvals.Approval(r.Context(), httpserver.Param(r, "approval"))
}

func (a *API) approve(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.Approvals.Approve(r.Context(), httpserver.Param(r, "approval"), caller(r))
}

// deny takes an optional {"reason": "…"}, which the asker is told.
func (a *API) deny(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted reasonBody
	if err := readOptional(w, r, maxDropBytes, &wanted, `send nothing, or {"reason":"…"}`); err != nil {
		return nil, err
	}
	if len(wanted.Reason) > maxReasonBytes || !utf8.ValidString(wanted.Reason) {
		return nil, fault.InField("reason", "must be at most 500 bytes of text")
	}
	return a.Approvals.Deny(r.Context(), httpserver.Param(r, "approval"), caller(r), wanted.Reason)
}

// maxEditBytes bounds the body of an edit: the text of an answer, with the escapes of JSON.
const maxEditBytes = 4 << 20

// editReply takes {"text": "…"}.
func (a *API) editReply(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted textBody
	if err := readOptional(w, r, maxEditBytes, &wanted, `send {"text":"…"}`); err != nil {
		return nil, err
	}
	return a.Approvals.EditReply(r.Context(), httpserver.Param(r, "approval"), caller(r), wanted.Text)
}

// readOptional reads a body that may be empty.
func readOptional(w http.ResponseWriter, r *http.Request, limit int64, into any, hint string) error {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(into)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge || err == nil || fault.Is(err, fault.Unavailable) {
		return err
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fault.Wrap(fault.Malformed, hint, err)
}
