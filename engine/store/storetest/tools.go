package storetest

import (
	"testing"

	"inbox/agents/runtime/tool/request"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
)

var toolCases = map[string]func(*testing.T, *probe){"pages": toolRequestPages}

// toolRequestPages: requests that were made at one instant are each on one page, and a cursor of nobody's is refused.
func toolRequestPages(t *testing.T, p *probe) {
	p.tx(func(tx pipeline.Tx) error {
		for _, id := range []string{"d", "a", "c", "b"} {
			if _, err := tx.InsertToolRequest(t.Context(), exchange.ToolRequest{ID: id, Agent: "echo", TurnID: "t", ToolName: "client/x", Status: request.StatusPending, CreatedAt: p.now}); err != nil {
				return err
			}
		}
		return nil
	})

	var read []string
	for before := ""; ; {
		rows, err := p.Pipeline.ToolRequests(t.Context(), exchange.ToolRequestFilter{Before: before, Limit: 2})
		p.ok(err)
		page := exchange.CutList(rows, 1, exchange.ToolRequest.Cursor)
		for _, one := range page.Items {
			read = append(read, one.ID)
		}
		if before = page.Next; before == "" {
			break
		}
	}
	p.same([]string{"a", "b", "c", "d"}, read)

	if _, err := p.Pipeline.ToolRequests(t.Context(), exchange.ToolRequestFilter{Before: "x"}); !fault.Is(err, fault.Malformed) {
		t.Errorf("a cursor that is none: %v", err)
	}
}
