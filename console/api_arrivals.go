package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
	"inbox/operator/lookup"
)

// arrivalRoutes are the lists of what came in and of all that is beside it.
func (a *API) arrivalRoutes() []httpserver.Route {
	return []httpserver.Route{
		a.route(http.MethodGet, "/api/v1/turns", a.listTurns),
		a.route(http.MethodGet, "/api/v1/threads", a.listThreads),
		a.route(http.MethodPut, "/api/v1/threads/{thread}/read", a.markRead),
		a.route(http.MethodGet, "/api/v1/threads/{thread}/readers", a.threadReaders),
		a.route(http.MethodGet, "/api/v1/unread", a.unread),
		a.route(http.MethodDelete, "/api/v1/unread", a.markAllRead),
		a.route(http.MethodGet, "/api/v1/deliveries", a.listDeliveries),
		a.route(http.MethodGet, "/api/v1/agents", a.listAgents),
		a.route(http.MethodGet, "/api/v1/tokens", a.listTokens),
		a.route(http.MethodGet, "/api/v1/follows", a.listFollows),
	}
}

// turnList may have a following page also after a short one.
type turnList struct {
	exchange.List[exchange.TurnRecord]

	After string `json:"after,omitempty" doc:"value of after for what comes later"`
}

// longestWait is how long a request for what comes later is kept open at most.
const longestWait = time.Minute

// listTurns takes the filters of exchange.ArrivalFilter; with after it returns what came later, oldest first, and waits for it.
func (a *API) listTurns(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	filter, err := arrivalFilter(r)
	if err != nil {
		return nil, err
	}
	if !query.Has("after") {
		after, err := a.operator.Arrivals.Newest(r.Context())
		if err != nil {
			return nil, err
		}
		page, err := a.operator.Arrivals.Page(r.Context(), filter)
		return turnList{exchange.NewList(page.Turns, page.Next), after}, err
	}

	if filter.Before != "" {
		return nil, fault.InField("after", "and before exclude each other")
	}
	wait, err := waitOf(query)
	if err != nil {
		return nil, err
	}
	turns, after, err := a.operator.Arrivals.After(r.Context(), filter, query.Get("after"), wait, httpserver.Stopping(r.Context()))
	return turnList{exchange.NewList(turns, ""), after}, err
}

// waitOf reads how long to wait; empty = not at all.
func waitOf(query url.Values) (time.Duration, error) {
	text := query.Get("wait")
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 {
		return 0, fault.InField("wait", "must be a time such as 30s")
	}
	return min(wait, longestWait), nil
}

func arrivalFilter(r *http.Request) (filter exchange.ArrivalFilter, err error) {
	query := r.URL.Query()
	filter = exchange.ArrivalFilter{
		Agent: query.Get("agent"), Sender: query.Get("sender"), Channel: query.Get("channel"), Text: query.Get("text"), Before: query.Get("before"),
	}
	if filter.States, err = words(query, "state", exchange.States()); err != nil {
		return filter, err
	}
	if filter.Since, filter.Until, err = timesOf(query); err != nil {
		return filter, err
	}
	filter.Limit, err = limit(r)
	return filter, err
}

// words reads a list of words with commas between, each of which must be one of the allowed.
func words(query url.Values, name string, allowed []string) (found []string, err error) {
	for _, value := range query[name] {
		for word := range strings.SplitSeq(value, ",") {
			if word = strings.TrimSpace(word); word == "" {
				continue
			}
			if !slices.Contains(allowed, word) {
				return nil, fault.InField(name, "must be one of "+strings.Join(allowed, ", "))
			}
			found = append(found, word)
		}
	}
	return found, nil
}

func timesOf(query url.Values) (since, until time.Time, err error) {
	now := time.Now()
	if text := query.Get("since"); text != "" {
		if since, err = operator.Moment("since", text, now); err != nil {
			return since, until, err
		}
	}
	if text := query.Get("until"); text != "" {
		until, err = operator.Moment("until", text, now)
	}
	return since, until, err
}

// listThreads may have a following page also after a short one.
func (a *API) listThreads(_ http.ResponseWriter, r *http.Request) (any, error) {
	filter, err := arrivalFilter(r)
	if err != nil {
		return nil, err
	}
	unread, err := wanted(r, "unread")
	if err != nil {
		return nil, err
	}
	if unread {
		found, _, err := a.operator.Arrivals.Unread(r.Context(), filter, owner(r))
		return whole(found, err)
	}
	found, next, err := a.operator.Arrivals.Conversations(r.Context(), filter, owner(r))
	return exchange.NewList(found, next), err
}

// threadReaders says who can read a conversation.
func (a *API) threadReaders(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Arrivals.Readers(r.Context(), conversation(r))
}

// owner is whose marks a caller's are: those of its token, as at the console.
func owner(r *http.Request) exchange.SessionOwner {
	token, _ := r.Context().Value(tokenKey{}).(exchange.Token)
	return exchange.SessionOwner{TokenID: token.ID}
}

func conversation(r *http.Request) lookup.ConversationID {
	return lookup.ConversationID{ID: httpserver.Param(r, "thread"), Agent: r.URL.Query().Get("agent"), Whole: true}
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

// unreadAnswer counts conversations that the caller did not read.
type unreadAnswer struct {
	Conversations int    `json:"conversations"`
	More          bool   `json:"more,omitempty"`   // there are more than are counted
	Older         bool   `json:"older,omitempty"`  // there are messages before the newest 1,000, which are not looked at
	Newest        string `json:"newest,omitempty"` // the newest message, for "until"
}

func (a *API) unread(_ http.ResponseWriter, r *http.Request) (any, error) {
	newest, err := a.operator.Arrivals.NewestMessage(r.Context())
	if err != nil {
		return nil, err
	}
	count, err := a.operator.Arrivals.CountUnread(r.Context(), owner(r))
	return unreadAnswer{count.Conversations, count.More, count.Older, newest}, err
}

// markRead takes ?agent=, where several agents have a conversation with the id.
func (a *API) markRead(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Arrivals.MarkConversationRead(r.Context(), owner(r), conversation(r))
}

// markAllRead takes ?until=, the newest message that the caller knows.
func (a *API) markAllRead(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Arrivals.MarkAllRead(r.Context(), owner(r), r.URL.Query().Get("until"))
}

func (a *API) listDeliveries(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	state, err := words(query, "state", operator.DeliveryStates())
	if err != nil {
		return nil, err
	}
	if len(state) > 1 {
		return nil, fault.InField("state", "must be one word")
	}
	since, until, err := timesOf(query)
	if err != nil {
		return nil, err
	}

	cursor := func(d operator.Delivery) string { return d.ID }
	return page(r, cursor, func(limit int) ([]operator.Delivery, error) {
		return a.operator.Deliveries.List(r.Context(), operator.DeliveryFilter{
			TurnID: query.Get("turn"), State: strings.Join(state, ""), Key: query.Get("to"), Agent: query.Get("agent"), Channel: query.Get("channel"),
			Since: since, Until: until, Before: query.Get("before"), Limit: limit,
		})
	})
}

// listAgents has one page: there are as many agents as the settings name.
func (a *API) listAgents(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	return whole(a.operator.Agents.List(r.Context(), operator.AgentFilter{Name: query.Get("agent"), Kind: query.Get("kind"), State: query.Get("state")}))
}

// listTokens never has the secrets: they are not kept.
func (a *API) listTokens(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	cursor := func(t exchange.Token) string { return t.ID }
	return page(r, cursor, func(limit int) ([]exchange.Token, error) {
		return a.operator.Tokens.Select(r.Context(), operator.TokenFilter{
			Agent: query.Get("agent"), Name: query.Get("name"), Scope: query.Get("scope"), Status: query.Get("status"), Before: query.Get("before"), Limit: limit,
		})
	})
}

func (a *API) listFollows(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	if err := renamedCursor(query); err != nil {
		return nil, err
	}
	return page(r, operator.Follow.Cursor, func(limit int) ([]operator.Follow, error) {
		return a.operator.Follows.List(r.Context(), operator.FollowFilter{
			Agent: query.Get("agent"), State: query.Get("state"), Actor: query.Get("actor"), After: query.Get("before"), Limit: limit,
		})
	})
}
