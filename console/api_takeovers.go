package console

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

// takeoverRoutes are the calls by which operators write as agents. A conversation is named by its id, with ?agent= where several agents
// have it, or by any id of one of its messages.
func (a *API) takeoverRoutes() []httpserver.Route {
	return []httpserver.Route{
		a.route(http.MethodGet, "/api/v1/takeovers", a.listTakeovers),
		a.route(http.MethodGet, "/api/v1/threads/{thread}/takeover", a.takeover),
		a.route(http.MethodPut, "/api/v1/threads/{thread}/takeover", a.takeOver),
		a.route(http.MethodDelete, "/api/v1/threads/{thread}/takeover", a.handBack),
		a.route(http.MethodPost, "/api/v1/threads/{thread}/reply", a.writeReply("thread")),
		a.route(http.MethodPost, "/api/v1/turns/{turn}/reply", a.writeReply("turn")),
	}
}

// listTakeovers takes status=open (the default) or status=all, agent, holder, before and limit.
func (a *API) listTakeovers(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	all, err := withClosed(query)
	if err != nil {
		return nil, err
	}

	cursor := func(t exchange.Takeover) string { return t.ID }
	return page(r, cursor, func(limit int) ([]exchange.Takeover, error) {
		return a.operator.Takeovers.List(r.Context(), exchange.TakeoverFilter{
			Agent: query.Get("agent"), Holder: query.Get("holder"), All: all, Before: query.Get("before"), Limit: limit,
		})
	})
}

func conversation(r *http.Request, name string) operator.ConversationID {
	return operator.ConversationID{ID: httpserver.Param(r, name), Agent: r.URL.Query().Get("agent"), Whole: name == "thread"}
}

func (a *API) takeover(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Takeovers.Of(r.Context(), conversation(r, "thread"))
}

// takeOver takes ?force=true, by which a conversation is taken from another operator.
func (a *API) takeOver(_ http.ResponseWriter, r *http.Request) (any, error) {
	force, err := wanted(r, "force")
	if err != nil {
		return nil, err
	}
	return a.operator.Takeovers.Take(r.Context(), conversation(r, "thread"), caller(r), force)
}

// handBack takes ?note=, ?drop=true and ?force=true.
func (a *API) handBack(_ http.ResponseWriter, r *http.Request) (any, error) {
	how := operator.HandBack{Note: r.URL.Query().Get("note")}
	if len(how.Note) > agents.MaxHandoverNote || !utf8.ValidString(how.Note) {
		return nil, fault.InField("note", "must be at most "+strconv.Itoa(agents.MaxHandoverNote)+" bytes of text")
	}
	var err error
	if how.Drop, err = wanted(r, "drop"); err != nil {
		return nil, err
	}
	if how.Force, err = wanted(r, "force"); err != nil {
		return nil, err
	}
	return a.operator.Takeovers.End(r.Context(), conversation(r, "thread"), caller(r), how)
}

// wanted reads true or false from the query; absent = false.
func wanted(r *http.Request, name string) (bool, error) {
	switch r.URL.Query().Get(name) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, fault.InField(name, "must be true or false")
}

// writeReply takes {"text": "…", "mime": "text/markdown"}; mime may be left out. The answer leaves right afterwards. A repeat with the same
// Idempotency-Key is the same answer.
func (a *API) writeReply(name string) call {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		var body answerBody
		if err := readOptional(w, r, maxEditBytes, &body, `send {"text":"…"}`); err != nil {
			return nil, err
		}
		return a.operator.Takeovers.Reply(r.Context(), conversation(r, name), caller(r), operator.WrittenReply{
			Text: body.Text, MIME: body.MIME, Key: strings.TrimSpace(r.Header.Get("Idempotency-Key")),
		})
	}
}
