package a2a

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/normalized"
)

const (
	defaultPage = 50
	maxPage     = 100
	scanPage    = 500
	maxScans    = 20 // rows looked at for a status filter: maxScans*scanPage of the caller's newest tasks
)

// ListTasks gives the caller's tasks, newest status first.
func (h *handler) ListTasks(ctx context.Context, req *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	c, err := h.enter(ctx, "ListTasks")
	if err != nil {
		return nil, err
	}
	response, err := h.list(ctx, c, req)
	if err != nil {
		return nil, h.fail(c, err)
	}
	return response, nil
}

func (h *handler) list(ctx context.Context, c *call, req *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	if err := checkList(req); err != nil {
		return nil, err
	}
	filter, found, err := listFilter(c.owner, req)
	if err != nil || !found {
		return &a2a.ListTasksResponse{Tasks: []*a2a.Task{}, PageSize: req.PageSize}, err
	}
	page, err := h.page(ctx, filter, req)
	if err != nil {
		return nil, err
	}
	return h.renderPage(ctx, c, page, req)
}

func checkList(req *a2a.ListTasksRequest) error {
	if req.PageSize == 0 {
		req.PageSize = defaultPage
	}
	if req.PageSize < 1 || req.PageSize > maxPage {
		return inField("pageSize", "must be from 1 to "+strconv.Itoa(maxPage))
	}
	if req.Status != a2a.TaskStateUnspecified && turnStates(req.Status) == nil {
		return inField("status", "is no task state")
	}
	return checkHistory("historyLength", req.HistoryLength)
}

// listFilter chooses the newest turn of each task of the owner. A context that is not the owner's has no tasks.
func listFilter(owned owner, req *a2a.ListTasksRequest) (filter exchange.TurnFilter, found bool, err error) {
	filter = exchange.TurnFilter{
		Agent: owned.agent, Principal: owned.principal, ReceivedVia: normalized.ViaA2A, Latest: true,
		States: turnStates(req.Status), Limit: req.PageSize + 1,
	}
	if req.StatusTimestampAfter != nil {
		// The instant itself counts (a2a.proto, ListTasksRequest), the store's bound does not; it keeps microseconds.
		filter.UpdatedAfter = req.StatusTimestampAfter.Add(-time.Microsecond)
	}
	if req.ContextID != "" {
		if strings.ContainsFunc(req.ContextID, unicode.IsControl) || !utf8.ValidString(req.ContextID) { // no message was taken for such a context
			return filter, false, nil
		}
		if filter.ThreadID, found = owned.thread(req.ContextID); !found {
			return filter, false, nil
		}
	}
	filter.Before, err = readPageToken(req.PageToken)
	return filter, true, err
}

// listed is one page: the newest turns of its tasks.
type listed struct {
	turns []exchange.TurnRecord
	more  bool
	total int64
}

func (h *handler) page(ctx context.Context, filter exchange.TurnFilter, req *a2a.ListTasksRequest) (listed, error) {
	if req.Status != a2a.TaskStateUnspecified {
		return h.scan(ctx, filter, req)
	}
	total, err := h.options.Turns.CountTurns(ctx, filter)
	if err != nil {
		return listed{}, err
	}
	turns, err := h.options.Turns.Turns(ctx, filter)
	more := len(turns) > req.PageSize
	if more {
		turns = turns[:req.PageSize]
	}
	return listed{turns: turns, more: more, total: total}, err
}

// scan filters by task state, which a turn's state and answer decide together, so the store cannot.
func (h *handler) scan(ctx context.Context, filter exchange.TurnFilter, req *a2a.ListTasksRequest) (listed, error) {
	var page listed
	cursor := filter.Before
	filter.Before, filter.Limit = "", scanPage
	for range maxScans {
		turns, err := h.options.Turns.Turns(ctx, filter)
		if err != nil {
			return page, err
		}
		for _, turn := range turns {
			t, err := h.assemble(ctx, []exchange.TurnRecord{turn})
			if err != nil {
				return page, err
			}
			if t.state() == req.Status {
				page.add(turn, cursor, req.PageSize)
			}
		}
		if len(turns) < scanPage {
			break
		}
		filter.Before = cursorOf(turns[len(turns)-1])
	}
	return page, nil
}

func (p *listed) add(turn exchange.TurnRecord, cursor string, size int) {
	p.total++
	switch {
	case cursor != "" && !follows(turn, cursor):
	case len(p.turns) == size:
		p.more = true
	default:
		p.turns = append(p.turns, turn)
	}
}

func (h *handler) renderPage(ctx context.Context, c *call, page listed, req *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	response := &a2a.ListTasksResponse{
		Tasks: make([]*a2a.Task, 0, len(page.turns)), TotalSize: int(page.total), PageSize: req.PageSize,
	}
	none := 0
	wanted := view{history: req.HistoryLength, artifacts: req.IncludeArtifacts}
	if wanted.history == nil {
		wanted.history = &none
	}
	for _, turn := range page.turns {
		t, err := h.listedTask(ctx, c, turn, wanted)
		if err != nil {
			return nil, err
		}
		rendered, err := h.render(ctx, t, wanted)
		if err != nil {
			return nil, err
		}
		response.Tasks = append(response.Tasks, rendered)
	}
	if page.more {
		response.NextPageToken = writePageToken(page.turns[len(page.turns)-1])
	}
	return response, nil
}

// listedTask reads the earlier turns of a task only where they will be seen.
func (h *handler) listedTask(ctx context.Context, c *call, turn exchange.TurnRecord, wanted view) (*task, error) {
	if routeOf(turn).Number <= 1 || (*wanted.history == 0 && !wanted.artifacts) {
		return h.assemble(ctx, []exchange.TurnRecord{turn})
	}
	return h.load(ctx, c.owner, a2a.TaskID(turn.Reference))
}

// cursorOf is the store's cursor after a turn.
func cursorOf(turn exchange.TurnRecord) string {
	return strconv.FormatInt(turn.UpdatedAt.UnixMicro(), 10) + "." + turn.ID
}

// follows says whether a turn comes after the cursor in the order newest update first.
func follows(turn exchange.TurnRecord, cursor string) bool {
	at, id, _ := strings.Cut(cursor, ".")
	micros, _ := strconv.ParseInt(at, 10, 64)
	if updated := turn.UpdatedAt.UnixMicro(); updated != micros {
		return updated < micros
	}
	return turn.ID < id
}

func writePageToken(last exchange.TurnRecord) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorOf(last)))
}

func readPageToken(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	decoded, err := base64.RawURLEncoding.DecodeString(token)
	at, id, found := strings.Cut(string(decoded), ".")
	_, number := strconv.ParseInt(at, 10, 64)
	if err != nil || !found || number != nil || len(id) != uuidLength || uuid.Validate(id) != nil {
		return "", inField("pageToken", "is not one that this server gave")
	}
	return fmt.Sprintf("%s.%s", at, id), nil
}
