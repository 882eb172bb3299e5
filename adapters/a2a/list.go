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

	maxPageToken = 128 // bytes; ours have 71
)

// ListTasks returns the caller's tasks, newest status first. A page costs the same however many tasks there are; totalSize
// ends at 10,000, which then means that many or more (a2a.proto calls it the number before pagination; AIP-158 lets it be
// an estimate).
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
	page, err := h.page(ctx, filter, req.PageSize)
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
	if _, known := standingOf(req.Status); req.Status != a2a.TaskStateUnspecified && !known {
		return inField("status", "is no task state")
	}
	return checkHistory("historyLength", req.HistoryLength)
}

// listFilter chooses the newest turn of each task of the owner. A context that is not the owner's has no tasks.
func listFilter(owned owner, req *a2a.ListTasksRequest) (filter exchange.TurnFilter, found bool, err error) {
	filter = exchange.TurnFilter{
		Agent: owned.agent, Principal: owned.principal, ReceivedVia: normalized.ViaA2A, Latest: true,
		Limit: req.PageSize + 1,
	}
	filter.Standing, _ = standingOf(req.Status)
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
	next  string // cursor of the following page; empty = this is the last one
	total int64
}

func (h *handler) page(ctx context.Context, filter exchange.TurnFilter, size int) (page listed, err error) {
	if page.total, err = h.options.Turns.CountTurns(ctx, filter); err != nil {
		return page, err
	}
	turns, err := h.options.Turns.Turns(ctx, filter)
	page.turns, page.next = exchange.NextPage(turns, size, exchange.TurnCursor)
	return page, err
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
	response.NextPageToken = writePageToken(page.next)
	return response, nil
}

// listedTask reads the earlier turns of a task only where they will be seen.
func (h *handler) listedTask(ctx context.Context, c *call, turn exchange.TurnRecord, wanted view) (*task, error) {
	if routeOf(turn).Number <= 1 || (*wanted.history == 0 && !wanted.artifacts) {
		return h.assemble(ctx, []exchange.TurnRecord{turn})
	}
	return h.load(ctx, c.owner, a2a.TaskID(turn.Reference))
}

// writePageToken makes a cursor opaque; none is none.
func writePageToken(cursor string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursor))
}

func readPageToken(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	if len(token) > maxPageToken {
		return "", inField("pageToken", "is not one that this server gave")
	}
	decoded, err := base64.RawURLEncoding.DecodeString(token)
	at, id, found := strings.Cut(string(decoded), ".")
	_, number := strconv.ParseInt(at, 10, 64)
	if err != nil || !found || number != nil || len(id) != uuidLength || uuid.Validate(id) != nil {
		return "", inField("pageToken", "is not one that this server gave")
	}
	return fmt.Sprintf("%s.%s", at, id), nil
}
