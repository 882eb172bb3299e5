package console

import (
	"io"
	"net/http"
	"strconv"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// result returns the conversation result of the newest run of a message that gave one, or of run=N.
func (a *API) result(_ http.ResponseWriter, r *http.Request) (any, error) {
	run := 0
	if text := r.URL.Query().Get("run"); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil || number < 1 {
			return nil, fault.InField("run", "must be the number of a run, from 1")
		}
		run = number
	}
	return a.operator.Results.Result(r.Context(), httpserver.Param(r, "turn"), run)
}

// original writes a message as it came. Browsers only store it: it is a stranger's.
func (a *API) original(w http.ResponseWriter, r *http.Request) (any, error) {
	found, err := a.operator.Messages.Original(r.Context(), httpserver.Param(r, "turn"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Content.Close() }()

	header := w.Header()
	header.Set("Content-Type", found.MediaType)
	header.Set("Content-Disposition", "attachment")
	header.Set("X-Content-Type-Options", "nosniff")
	_, _ = io.Copy(w, found.Content) // the reader went away: nothing to do
	return written{}, nil
}
