package storetest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

var listCases = map[string]func(*testing.T, *probe){
	"filters":                      listFilters,
	"pages":                        listPages,
	"wrong cursors":                wrongCursors,
	"the newest of each reference": newestOfEach,
	"what a carrier brought":       broughtBy,
}

func (p *probe) list(filter exchange.TurnFilter) []string {
	p.Helper()
	turns, err := p.Records.Turns(p.Context(), filter)
	p.ok(err)
	ids := []string{}
	for _, turn := range turns {
		ids = append(ids, turn.Message.ID)
	}

	count, err := p.Records.CountTurns(p.Context(), filter)
	p.ok(err)

	if filter.Limit == 0 && filter.Before == "" && count != int64(len(ids)) {
		p.Errorf("%+v: counted %d, listed %d", filter, count, len(ids))
	}
	return ids
}

func listFilters(t *testing.T, p *probe) {
	for i, change := range []func(*exchange.TurnRecord){
		func(*exchange.TurnRecord) {},
		func(turn *exchange.TurnRecord) { turn.Agent = "other" },
		func(turn *exchange.TurnRecord) { turn.Principal = "peer.example bob" },
		func(turn *exchange.TurnRecord) { turn.ThreadID = "thread 2" },
		func(turn *exchange.TurnRecord) { turn.Reference = "task" },
		func(turn *exchange.TurnRecord) { turn.Message.ReceivedVia = normalized.ViaA2A },
		func(turn *exchange.TurnRecord) { turn.State = exchange.StateHeld },
		func(turn *exchange.TurnRecord) { turn.State = exchange.StateSilent },
	} {
		turn := p.message(fmt.Sprint(i))
		change(&turn)
		p.insert(turn)
	}
	for name, test := range map[string]struct {
		filter exchange.TurnFilter
		want   []string
	}{
		"all":         {exchange.TurnFilter{}, []string{"7", "6", "5", "4", "3", "2", "1", "0"}},
		"agent":       {exchange.TurnFilter{Agent: "other"}, []string{"1"}},
		"principal":   {exchange.TurnFilter{Principal: "peer.example bob"}, []string{"2"}},
		"owner":       {exchange.TurnFilter{Agent: "echo", Principal: "peer.example bob"}, []string{"2"}},
		"thread":      {exchange.TurnFilter{ThreadID: "thread 2"}, []string{"3"}},
		"agent's":     {exchange.TurnFilter{ThreadID: "thread 2", Agent: "echo"}, []string{"3"}},
		"reference":   {exchange.TurnFilter{Reference: "task"}, []string{"4"}},
		"via":         {exchange.TurnFilter{ReceivedVia: normalized.ViaA2A}, []string{"5"}},
		"states":      {exchange.TurnFilter{States: []string{exchange.StateHeld, exchange.StateSilent}}, []string{"7", "6"}},
		"nothing":     {exchange.TurnFilter{Agent: "other", Principal: "peer.example bob"}, []string{}},
		"limit":       {exchange.TurnFilter{Limit: 2}, []string{"7", "6"}},
		"since":       {exchange.TurnFilter{UpdatedAfter: p.now.Add(-2e6)}, []string{"7", "6"}},
		"latest also": {exchange.TurnFilter{Latest: true, States: []string{exchange.StateAccepted}}, []string{"4"}},
	} {
		if diff := cmp.Diff(test.want, p.list(test.filter)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func listPages(t *testing.T, p *probe) {
	same := p.now
	for i := range 10 {
		turn := p.message(fmt.Sprint(i))
		if i%2 == 0 {
			turn.UpdatedAt = same // equal times must not hide rows
		}
		p.insert(turn)
	}

	want := p.list(exchange.TurnFilter{})
	got, before := []string{}, ""
	for range 10 {
		turns, err := p.Records.Turns(t.Context(), exchange.TurnFilter{Limit: 3, Before: before})
		p.ok(err)
		for _, turn := range turns {
			got = append(got, turn.Message.ID)
			before = fmt.Sprintf("%d.%s", turn.UpdatedAt.UnixMicro(), turn.ID)
		}
	}

	if diff := cmp.Diff(want, got); diff != "" || len(got) != 10 {
		t.Errorf("(-whole +pages):\n%s", diff)
	}
}

func wrongCursors(t *testing.T, p *probe) {
	for _, cursor := range []string{"x", "1", "a.b", "1.\x00", "999999999999999999999.a"} {
		_, err := p.Records.Turns(t.Context(), exchange.TurnFilter{Before: cursor})
		if !fault.Is(err, fault.Malformed) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

func broughtBy(t *testing.T, p *probe) {
	const token, other = "inbox.example token:1", "inbox.example token:2"
	for _, one := range []struct{ id, principal, carrier, thread, conversation string }{
		{"own", token, "", "C.own", "C"}, {"ann", "a.example ann", token, "C.ann", "C"}, {"eve", "a.example eve", token, "C.eve", "C"},
		{"elsewhere", "a.example ann", token, "D.ann", "D"}, {"another's", "a.example ann", other, "C.other", "C"},
	} {
		turn := p.message(one.id)
		turn.Principal, turn.Carrier, turn.ThreadID, turn.Conversation, turn.Reference = one.principal, one.carrier, one.thread, one.conversation, "task of "+one.id
		p.insert(turn)
	}

	for name, c := range map[string]struct {
		filter exchange.TurnFilter
		want   []string
	}{
		"all":                 {exchange.TurnFilter{Carrier: token}, []string{"elsewhere", "eve", "ann", "own"}},
		"its own":             {exchange.TurnFilter{Principal: token}, []string{"own"}},
		"tasks":               {exchange.TurnFilter{Carrier: token, Latest: true}, []string{"elsewhere", "eve", "ann", "own"}},
		"tasks of a context":  {exchange.TurnFilter{Carrier: token, Latest: true, ThreadID: "C.own", Conversation: "C"}, []string{"eve", "ann", "own"}},
		"a context by state":  {exchange.TurnFilter{Carrier: token, ThreadID: "C.own", Conversation: "C", States: []string{exchange.StateAccepted}}, []string{"eve", "ann", "own"}},
		"a thread":            {exchange.TurnFilter{Carrier: token, ThreadID: "C.ann"}, []string{"ann"}},
		"a task":              {exchange.TurnFilter{Carrier: token, Reference: "task of ann"}, []string{"ann"}},
		"a task of another":   {exchange.TurnFilter{Carrier: other, Reference: "task of ann"}, []string{}},
		"a task of its owner": {exchange.TurnFilter{Carrier: "a.example ann", Reference: "task of ann"}, []string{}},
	} {
		c.filter.Agent = "echo"
		if diff := cmp.Diff(c.want, p.list(c.filter)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func newestOfEach(t *testing.T, p *probe) {
	for i, reference := range []string{"a", "b", "", "a", "", "b", "a"} {
		turn := p.message(fmt.Sprint(i))
		turn.Reference = reference
		if i == 5 {
			turn.Principal = "peer.example bob" // his b is another one
		}
		p.insert(turn)
	}

	if diff := cmp.Diff([]string{"6", "5", "1"}, p.list(exchange.TurnFilter{Latest: true})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	owner := exchange.TurnFilter{Latest: true, Agent: "echo", Principal: "peer.example alice", Reference: "a"}
	if diff := cmp.Diff([]string{"6"}, p.list(owner)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// The newest one decides, even when an earlier one would fit the rest of the filter.
	p.tx(func(tx pipeline.Tx) error {
		turns, err := p.Records.Turns(t.Context(), owner)
		if err != nil {
			return err
		}
		_, err = tx.MoveTurn(t.Context(), pipeline.Move{ID: turns[0].ID, From: []string{"accepted"}, To: "answered", At: p.now})
		return err
	})

	owner.States = []string{exchange.StateAccepted}
	if got := p.list(owner); len(got) != 0 {
		t.Errorf("listed %v", got)
	}
}
