package console_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"inbox/console"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
	"inbox/operator/held"
)

// office is a recorder of what the operator API asked for.
type office struct {
	acts               []string // what the audit trail was told
	operator.TokenRows          // of which the API calls TokenByHash alone

	tokens map[string]exchange.Token // by their text
	turns  []exchange.TurnRecord
	links  []exchange.PersonLink
	calls  []string
}

func (o *office) TokenByHash(_ context.Context, hash string) (exchange.Token, bool, error) {
	for text, token := range o.tokens {
		if sum := sha256.Sum256([]byte(text)); hex.EncodeToString(sum[:]) == hash {
			token.Hash = hash
			return token, true, nil
		}
	}
	return exchange.Token{}, false, nil
}

func (o *office) Turn(_ context.Context, id string) (exchange.TurnRecord, error) {
	for _, turn := range o.turns {
		if turn.ID == id {
			return turn, nil
		}
	}
	return exchange.TurnRecord{}, fault.New(fault.NotFound, "no such turn")
}

func (o *office) Turns(_ context.Context, f exchange.TurnFilter) ([]exchange.TurnRecord, error) {
	o.calls = append(o.calls, strings.Join(f.States, ",")+" "+f.Agent+" "+f.Before+" "+strconv.Itoa(f.Limit))
	return o.turns[:min(f.Limit, len(o.turns))], nil
}

func (o *office) Release(_ context.Context, id string) error {
	o.calls = append(o.calls, "release "+id)
	if id != "t1" {
		return fault.New(fault.Conflict, "the message is not held any more")
	}
	return nil
}

func (o *office) Restore(_ context.Context, id string) error {
	o.calls = append(o.calls, "restore "+id)
	return nil
}

func (o *office) Drop(_ context.Context, id, reason string) error {
	o.calls = append(o.calls, "drop "+id+": "+reason)
	return nil
}

func (o *office) Audit(_ context.Context, record exchange.AuditRecord) error {
	o.acts = append(o.acts, record.Code+" by "+record.Principal)
	return nil
}

func (o *office) AuditRecords(_ context.Context, f exchange.AuditFilter) ([]exchange.AuditRecord, error) {
	o.calls = append(o.calls, strings.Join([]string{f.Code, f.TurnID, f.Agent, f.Before, strconv.Itoa(f.Limit)}, " "))
	records := []exchange.AuditRecord{{ID: "a1", Code: "state:used"}, {ID: "a0"}}
	return records[:min(f.Limit, len(records))], nil
}

func (o *office) Links(_ context.Context, before string, limit int) ([]exchange.PersonLink, error) {
	o.calls = append(o.calls, "links "+before+" "+strconv.Itoa(limit))
	if before == o.links[len(o.links)-1].ID { // nothing is older
		return nil, nil
	}
	return o.links, nil
}

func (o *office) EndLinks(_ context.Context, filter exchange.LinkFilter, end exchange.LinkEnd) ([]exchange.PersonLink, error) {
	o.calls = append(o.calls, "unlink "+filter.Agent+" "+filter.Principal+" "+end.By)
	return o.links[:1], nil
}

func (o *office) Approvals(_ context.Context, f exchange.ApprovalFilter) ([]exchange.Approval, error) {
	o.calls = append(o.calls, strings.Join([]string{"approvals", f.Agent, strconv.FormatBool(f.All), f.Before, strconv.Itoa(f.Limit)}, " "))
	approvals := []exchange.Approval{{ID: "p1", Code: "7k3mq2"}, {ID: "p0"}}
	return approvals[:min(f.Limit, len(approvals))], nil
}

func (o *office) decided(call, id string) (exchange.Approval, error) {
	o.calls = append(o.calls, call)
	if id != "p1" {
		return exchange.Approval{}, fault.New(fault.Conflict, "this was decided before")
	}
	return exchange.Approval{ID: id, Status: exchange.ApprovalApproved}, nil
}

func (o *office) Approval(_ context.Context, id string) (exchange.Approval, error) {
	return o.decided("approval "+id, id)
}

func (o *office) Approvable(_ context.Context, id, by string) (exchange.Approval, error) {
	return o.decided("approvable "+id+" by "+by, id)
}

func (o *office) Approve(_ context.Context, id, shown, by string) (exchange.Approval, error) {
	if shown != "" {
		by += " as " + shown
	}
	return o.decided("approve "+id+" by "+by, id)
}

func (o *office) Deny(_ context.Context, id, by, reason string) (exchange.Approval, error) {
	return o.decided("deny "+id+" by "+by+": "+reason, id)
}

func (o *office) EditReply(_ context.Context, id, by, text string) (exchange.Approval, error) {
	return o.decided("edit "+id+" by "+by+": "+text, id)
}

func (o *office) Find(ctx context.Context, id string) (string, []string, error) {
	turn, err := o.Turn(ctx, id)
	return "turn", []string{turn.ID}, err
}

func (o *office) Deliveries(context.Context, operator.DeliveryFilter) ([]operator.Delivery, error) {
	return nil, nil
}

func (o *office) ToolRequests(context.Context, exchange.ToolRequestFilter) ([]exchange.ToolRequest, error) {
	return nil, nil
}

func (o *office) Takeover(context.Context, string, string) (exchange.Takeover, bool, error) {
	return exchange.Takeover{}, false, nil
}

func (o *office) WaitingForOperator(context.Context, string, string, int) ([]string, error) {
	return nil, nil
}

func (o *office) TurnJob(context.Context, exchange.TurnRecord) (store.JobRecord, bool, error) {
	return store.JobRecord{}, false, nil
}

func (o *office) BackEnds(context.Context) ([]pipeline.BackEnd, error) { return nil, nil }

func (o *office) Draft(context.Context, string) (exchange.Reply, error) {
	return exchange.Reply{}, fault.New(fault.NotFound, "none")
}

// Events returns more rows than one page, so that the answer has to gather them.
func (o *office) Events(_ context.Context, turnID string, after int64, limit int) (events []exchange.Event, err error) {
	for seq := after + 1; turnID == "t2" && seq <= 602 && len(events) < limit; seq++ {
		event := exchange.Event{TurnID: turnID, Seq: seq, Kind: exchange.EventDelta, Body: json.RawMessage(`{"kind":"text","text":"piece"}`)}
		if seq > 600 {
			event.Kind, event.Body = exchange.EventModelCalled, json.RawMessage(`{"n":1,"prompt_tokens":5,"cost":0.1,"currency":"EUR"}`)
		}
		events = append(events, event)
	}
	return events, nil
}

func newOffice() *office {
	return &office{
		tokens: map[string]exchange.Token{
			"admin": {Name: "laptop", Scope: exchange.TokenAdmin}, "peer": {}, "revoked": {Scope: exchange.TokenAdmin, RevokedAt: time.Unix(1, 0)},
			"ended": {Scope: exchange.TokenAdmin, ExpiresAt: time.Unix(1, 0)}, "work": {Name: "desk", Scope: exchange.TokenWork}, "read": {Name: "wall", Scope: exchange.TokenRead},
		},
		turns: []exchange.TurnRecord{{ID: "t1", State: exchange.StateHeld, UpdatedAt: time.UnixMicro(7)}, {ID: "t2", State: exchange.StateHeld}},
		links: []exchange.PersonLink{
			{ID: "p1", Agent: "memory", Sides: [2]exchange.LinkSide{{Principal: "x acct:a@x"}, {Principal: "x mailto:a@x"}}},
			{ID: "p2", Agent: "memory", Sides: [2]exchange.LinkSide{{Principal: "x mailto:b@x"}, {Principal: "x mailto:c@x"}}},
			{ID: "p0", Agent: "memory", Sides: [2]exchange.LinkSide{{Principal: "x mailto:d@x"}, {Principal: "x mailto:e@x"}}},
		},
	}
}

func call(t *testing.T, o *office, method, path, body, authorization string) *httptest.ResponseRecorder {
	t.Helper()
	api := console.NewAPI(&operator.Operator{
		Tokens: operator.Tokens{Rows: o}, Messages: operator.Messages{Timelines: o, Finder: o, Rows: o}, Held: held.New(o, o, nil, nil),
		Audit: operator.Audit{Rows: o}, People: operator.People{Rows: o}, Approvals: o,
	}).WithChat(mute{})
	server, err := httpserver.New(httpserver.Options{Routes: api.Routes()})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	recorder := httptest.NewRecorder()
	server.Handler().ServeHTTP(recorder, request)
	return recorder
}

func TestOnlyOperatorsReachTheAPI(t *testing.T) {
	routes := console.NewAPI(&operator.Operator{}).Routes()
	for _, route := range routes {
		path := strings.NewReplacer("{turn}", "t1", "{approval}", "p1").Replace(route.Pattern)
		for authorization, want := range map[string]struct {
			status    int
			challenge string
		}{
			"":               {http.StatusUnauthorized, `Bearer realm="operator API"`},
			"Basic YTpi":     {http.StatusUnauthorized, `Bearer realm="operator API"`},
			"Bearer":         {http.StatusUnauthorized, `Bearer realm="operator API"`},
			"Bearer unknown": {http.StatusUnauthorized, `Bearer realm="operator API", error="invalid_token"`},
			"Bearer revoked": {http.StatusUnauthorized, `Bearer realm="operator API", error="invalid_token"`},
			"Bearer peer":    {http.StatusForbidden, `Bearer realm="operator API", error="insufficient_scope", scope="` + console.RoleOf(route.Method, route.Pattern).String() + `"`},
			"Bearer ended":   {http.StatusUnauthorized, `Bearer realm="operator API", error="invalid_token"`},
		} {
			o := newOffice()
			answer := call(t, o, route.Method, path, "", authorization)
			if answer.Code != want.status || answer.Header().Get("WWW-Authenticate") != want.challenge || len(o.calls) != 0 {
				t.Errorf("%s %s with %q: %d %q %v", route.Method, path, authorization, answer.Code, answer.Header().Get("WWW-Authenticate"), o.calls)
			}
		}
	}
}

func TestOperatorAPI(t *testing.T) {
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		call, holds        string
	}{
		"held":            {http.MethodGet, "/api/v1/held?agent=echo", "", http.StatusOK, "held echo  51", `{"items":[{"id":"t1"`},
		"held, page":      {http.MethodGet, "/api/v1/held?limit=1&before=9.t0", "", http.StatusOK, "held  9.t0 2", `"next":"7.t1"`},
		"held, last page": {http.MethodGet, "/api/v1/held?limit=2", "", http.StatusOK, "held   3", `"id":"t2"`},
		"limit":           {http.MethodGet, "/api/v1/held?limit=501", "", http.StatusBadRequest, "", `"field":"limit"`},
		"release":         {http.MethodPost, "/api/v1/held/t1/release", "", http.StatusNoContent, "release t1", ""},
		"release late":    {http.MethodPost, "/api/v1/held/t9/release", "", http.StatusConflict, "release t9", "not held any more"},
		"dropped":         {http.MethodGet, "/api/v1/held?agent=echo&dropped=true", "", http.StatusOK, "refused echo  51", `"items":[{"id":"t1"`},
		"dropped, other":  {http.MethodGet, "/api/v1/held?dropped=maybe", "", http.StatusBadRequest, "", `"field":"dropped"`},
		"restore":         {http.MethodPost, "/api/v1/held/t1/restore", "", http.StatusNoContent, "restore t1", ""},
		"drop":            {http.MethodPost, "/api/v1/held/t1/drop", "", http.StatusNoContent, "drop t1: dropped by the operator", ""},
		"drop, reason":    {http.MethodPost, "/api/v1/held/t1/drop", `{"reason":"spam"}`, http.StatusNoContent, "drop t1: spam", ""},
		"drop, member":    {http.MethodPost, "/api/v1/held/t1/drop", `{"reasn":"spam"}`, http.StatusBadRequest, "", `the member \"reasn\" is not known: send nothing, or`},
		"drop, broken":    {http.MethodPost, "/api/v1/held/t1/drop", `reason`, http.StatusBadRequest, "", `"code":"malformed"`},
		"drop, long":      {http.MethodPost, "/api/v1/held/t1/drop", `{"reason":"` + strings.Repeat("x", 501) + `"}`, http.StatusBadRequest, "", `"field":"reason"`},
		"drop, too long":  {http.MethodPost, "/api/v1/held/t1/drop", `{"reason":"` + strings.Repeat("x", 5000) + `"}`, http.StatusRequestEntityTooLarge, "", "too_large"},
		"turn":            {http.MethodGet, "/api/v1/turns/t2", "", http.StatusOK, "", `"id":"t2"`},
		"its timeline":    {http.MethodGet, "/api/v1/turns/t2", "", http.StatusOK, "", `"spent":{"model_calls":2,"tool_calls":0,"prompt_tokens":10,"completion_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"model_ms":0,"cost":0.2,"currency":"EUR"},"events":[{"turn_id":"t2","seq":601,`},
		"no turn":         {http.MethodGet, "/api/v1/turns/t9", "", http.StatusNotFound, "", "no such turn"},
		"approvals":       {http.MethodGet, "/api/v1/approvals?agent=shop", "", http.StatusOK, "approvals shop false  51", `{"items":[{"id":"p1","code":"7k3mq2"`},
		"approvals, all":  {http.MethodGet, "/api/v1/approvals?status=all&limit=1&before=p9", "", http.StatusOK, "approvals  true p9 2", `"next":"p1"`},
		"status":          {http.MethodGet, "/api/v1/approvals?status=denied", "", http.StatusBadRequest, "", `"field":"status"`},
		"approval":        {http.MethodGet, "/api/v1/approvals/p1", "", http.StatusOK, "approval p1", `"id":"p1"`},
		"approve as read": {http.MethodPost, "/api/v1/approvals/p1/approve", `{"digest":"6f3c"}`, http.StatusOK, "approve p1 by operator:laptop as 6f3c", `"status":"approved"`},
		"approve what":    {http.MethodPost, "/api/v1/approvals/p1/approve", `{"digest":`, http.StatusBadRequest, "", "digest"},
		"approve twice":   {http.MethodPost, "/api/v1/approvals/p2/approve", `{"digest":"6f3c"}`, http.StatusConflict, "approve p2 by operator:laptop as 6f3c", "decided before"},
		"deny":            {http.MethodPost, "/api/v1/approvals/p1/deny", "", http.StatusOK, "deny p1 by operator:laptop: ", `"id":"p1"`},
		"deny, reason":    {http.MethodPost, "/api/v1/approvals/p1/deny", `{"reason":"too late"}`, http.StatusOK, "deny p1 by operator:laptop: too late", `"id":"p1"`},
		"deny, long":      {http.MethodPost, "/api/v1/approvals/p1/deny", `{"reason":"` + strings.Repeat("x", 501) + `"}`, http.StatusBadRequest, "", `"field":"reason"`},
		"edit":            {http.MethodPost, "/api/v1/approvals/p1/edit", `{"text":"We open at nine."}`, http.StatusOK, "edit p1 by operator:laptop: We open at nine.", `"id":"p1"`},
		"edit, member":    {http.MethodPost, "/api/v1/approvals/p1/edit", `{"text":"x","txt":"y"}`, http.StatusBadRequest, "", `\"txt\" is not known`},
		"edit, broken":    {http.MethodPost, "/api/v1/approvals/p1/edit", `We open at nine.`, http.StatusBadRequest, "", `"code":"malformed"`},
		"people":          {http.MethodGet, "/api/v1/people", "", http.StatusOK, "links  51", `"person_id":"p1","agent":"memory","principal":"x acct:a@x"`},
		"people, page":    {http.MethodGet, "/api/v1/people?limit=2&before=p9", "", http.StatusOK, "links p9 3", `"next":"p2"`},
		"unlink":          {http.MethodDelete, "/api/v1/people?principal=x%20https%3A%2F%2Fy%2Fz", "", http.StatusNoContent, "unlink  x https://y/z operator:laptop", ""},
		"unlink, agent":   {http.MethodDelete, "/api/v1/people?agent=memory&principal=x%20y", "", http.StatusNoContent, "unlink memory x y operator:laptop", ""},
		"unlink nobody":   {http.MethodDelete, "/api/v1/people", "", http.StatusBadRequest, "", `"field":"principal"`},
		"audit": {http.MethodGet, "/api/v1/audit?code=state%3A*&turn=t1&agent=echo&before=a9&limit=1", "", http.StatusOK,
			"state:* t1 echo a9 2", `"next":"a1"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice()
			answer := call(t, o, test.method, test.path, test.body, "bearer admin")
			if answer.Code != test.status || !strings.Contains(answer.Body.String(), test.holds) {
				t.Errorf("status %d\n%s", answer.Code, answer.Body)
			}
			if got := strings.Join(o.calls, ", "); got != test.call {
				t.Errorf("called %q, want %q", got, test.call)
			}
			if strings.HasSuffix(name, "last page") && !strings.Contains(answer.Body.String(), `"next":""`) {
				t.Error("the last page names another one")
			}
			if answer.Header().Get("Cache-Control") != "no-store" {
				t.Error("the answer may be cached")
			}
		})
	}
}

// TestEveryCallNeedsItsRole tries every call with the tokens of the smaller roles: none of them does anything, and the audit trail is
// told of none.
func TestEveryCallNeedsItsRole(t *testing.T) {
	for _, route := range console.NewAPI(&operator.Operator{}).WithChat(mute{}).Routes() {
		needed := console.RoleOf(route.Method, route.Pattern)
		looks := slices.Contains([]string{
			"/api/v1/agents/{agent}/access-check",             // a question that is too long for an address
			"/api/v1/threads/{thread}/read", "/api/v1/unread", // what the caller has read, which is theirs alone
		}, route.Pattern)
		if route.Method != http.MethodGet && needed < exchange.RoleWork && !looks {
			t.Errorf("%s %s changes something and needs only the role %s", route.Method, route.Pattern, needed)
		}
		for token, role := range map[string]exchange.Role{"read": exchange.RoleRead, "work": exchange.RoleWork} {
			if role >= needed {
				continue
			}
			o := newOffice()
			answer := call(t, o, route.Method, strings.NewReplacer("{turn}", "t1", "{approval}", "p1").Replace(route.Pattern), "{}", "Bearer "+token)
			if answer.Code != http.StatusForbidden || len(o.calls)+len(o.acts) > 0 || !strings.Contains(answer.Body.String(), needed.String()) {
				t.Errorf("%s %s with the role %s: %d %s %v %v", route.Method, route.Pattern, role, answer.Code, answer.Body, o.calls, o.acts)
			}
		}
	}
}

func TestChangesAreOnRecordBeforeTheyAreMade(t *testing.T) {
	o := newOffice()
	call(t, o, http.MethodPost, "/api/v1/held/t1/release", "", "Bearer work")
	call(t, o, http.MethodGet, "/api/v1/held", "", "Bearer read")
	call(t, o, http.MethodPost, "/api/v1/held/t2/drop", `{"reason":"`+strings.Repeat("x", 600)+`"}`, "Bearer admin") // refused, and asked for all the same
	if want := []string{"operator:held.release by operator:desk", "operator:held.drop by operator:laptop"}; !slices.Equal(o.acts, want) {
		t.Errorf("the trail has %q, want %q", o.acts, want)
	}
}

// mute has no agent to talk to.
type mute struct{}

func (mute) ServeOperator(http.ResponseWriter, *http.Request, string, exchange.Token) error {
	return errors.New("the chat was reached")
}
