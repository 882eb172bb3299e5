package console

import (
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
