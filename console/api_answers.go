package console

import (
	"context"
	"net/http"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// Answers changes answers that were given. ID is that of the answer, of its turn, or its address; by is who does it, for
// the record. Errors: fault.NotFound, fault.Conflict (taken back before), fault.Malformed, fault.Unsupported (the way by
// which it left knows no such thing).
type Answers interface {
	Delete(ctx context.Context, id, by string) error
	Edit(ctx context.Context, id, by, text, mime string) error
	// Pin shows an answer on the profile of its agent, or no longer; it does nothing where that is so.
	Pin(ctx context.Context, id string, pinned bool) error
}

func (a *API) deleteAnswer(_ http.ResponseWriter, r *http.Request) (any, error) {
	if a.Answers == nil {
		return nil, fault.New(fault.NotFound, "nothing is at this address")
	}
	return nil, a.Answers.Delete(r.Context(), httpserver.Param(r, "reply"), caller(r))
}

// editAnswer takes {"text": "…", "mime": "text/markdown"}; mime may be left out.
func (a *API) editAnswer(w http.ResponseWriter, r *http.Request) (any, error) {
	if a.Answers == nil {
		return nil, fault.New(fault.NotFound, "nothing is at this address")
	}
	var wanted answerBody
	if err := readOptional(w, r, maxEditBytes, &wanted, `send {"text":"…"}`); err != nil {
		return nil, err
	}
	return nil, a.Answers.Edit(r.Context(), httpserver.Param(r, "reply"), caller(r), wanted.Text, wanted.MIME)
}

func (a *API) pinAnswer(pinned bool) call {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		if a.Answers == nil {
			return nil, fault.New(fault.NotFound, "nothing is at this address")
		}
		return nil, a.Answers.Pin(r.Context(), httpserver.Param(r, "reply"), pinned)
	}
}
