package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/exchange"
)

var auditCases = map[string]func(*testing.T, *probe){
	"comes back as it was":   auditRoundTrip,
	"filters":                auditFilters,
	"pages":                  auditPages,
	"takes whatever is said": auditHostile,
	"goes with the work":     auditWithWork,
}

func auditRoundTrip(t *testing.T, p *probe) {
	record := exchange.AuditRecord{
		ID: newID(), At: p.now, Code: "evidence:expired", TurnID: newID(), Agent: "echo", Principal: "a.example alice", Detail: "<5 s>",
	}

	p.ok(p.Trust.Audit(t.Context(), record))
	p.ok(p.Trust.Audit(t.Context(), record)) // a repeat is the same record
	records, err := p.Trust.AuditRecords(t.Context(), exchange.AuditFilter{})
	p.ok(err)
	p.same([]exchange.AuditRecord{record}, records)
	p.ok(p.Trust.Audit(t.Context(), exchange.AuditRecord{Code: "state:used"}))
	records, err = p.Trust.AuditRecords(t.Context(), exchange.AuditFilter{Code: "state:used"})
	if err != nil || len(records) != 1 || records[0].ID == "" || records[0].At.IsZero() {
		t.Errorf("got %+v, %v", records, err)
	}
}

func (p *probe) audited(filter exchange.AuditFilter) (details, ids []string) {
	p.Helper()
	records, err := p.Trust.AuditRecords(p.Context(), filter)
	p.ok(err)
	details = []string{}
	for _, record := range records {
		details, ids = append(details, record.Detail), append(ids, record.ID)
	}
	return details, ids
}

func auditFilters(t *testing.T, p *probe) {
	turnID := newID()
	for i, record := range []exchange.AuditRecord{
		{Code: "evidence:expired"}, {Code: "evidence:unknown_key", Agent: "echo"}, {Code: "access:no_rule", Agent: "echo"},
		{Code: "Evidence:expired", TurnID: turnID}, {Code: "evidences"}, {Code: "evidence:expired", Agent: "other", TurnID: turnID},
		{Code: "evidence_x"},
	} {
		record.ID, record.At, record.Detail = newID(), p.now, fmt.Sprint(i)
		p.ok(p.Trust.Audit(t.Context(), record))
	}

	for name, test := range map[string]struct {
		filter exchange.AuditFilter
		want   string
	}{
		"all":       {exchange.AuditFilter{}, "6 5 4 3 2 1 0"},
		"any code":  {exchange.AuditFilter{Code: "*"}, "6 5 4 3 2 1 0"},
		"code":      {exchange.AuditFilter{Code: "evidence:expired"}, "5 0"},
		"prefix":    {exchange.AuditFilter{Code: "evidence:*"}, "5 1 0"},
		"wildcard":  {exchange.AuditFilter{Code: "evidence_*"}, "6"},
		"turn":      {exchange.AuditFilter{TurnID: turnID}, "5 3"},
		"agent":     {exchange.AuditFilter{Agent: "echo"}, "2 1"},
		"together":  {exchange.AuditFilter{Agent: "other", TurnID: turnID, Code: "evidence:*"}, "5"},
		"limit":     {exchange.AuditFilter{Limit: 2}, "6 5"},
		"nothing":   {exchange.AuditFilter{Code: "x*"}, ""},
		"no text":   {exchange.AuditFilter{Code: "a\x00*", TurnID: "\xff", Agent: "\x00", Before: "\xff"}, ""},
		"too large": {exchange.AuditFilter{Limit: 1 << 20}, "6 5 4 3 2 1 0"},
	} {
		details, _ := p.audited(test.filter)
		if diff := cmp.Diff(test.want, strings.Join(details, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func auditPages(t *testing.T, p *probe) {
	for range 7 {
		p.ok(p.Trust.Audit(t.Context(), exchange.AuditRecord{ID: newID(), At: p.now, Code: "access:no_rule"}))
	}

	_, want := p.audited(exchange.AuditFilter{})
	var got []string
	for before := ""; ; before = got[len(got)-1] {
		_, page := p.audited(exchange.AuditFilter{Limit: 3, Before: before})
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
	}

	if diff := cmp.Diff(want, got); diff != "" || len(got) != 7 {
		t.Errorf("(-whole +pages):\n%s", diff)
	}
}

func auditHostile(t *testing.T, p *probe) {
	for _, bad := range append(unkeepable, strings.Repeat("ä", 100_000)) {
		p.ok(p.Trust.Audit(t.Context(), exchange.AuditRecord{
			ID: newID(), Code: bad, TurnID: bad, Agent: bad, Principal: bad, Detail: bad,
		}))
	}
	records, err := p.Trust.AuditRecords(t.Context(), exchange.AuditFilter{})
	if err != nil || len(records) != 3 || len(records[0].Detail) > 1024 || strings.Trim(records[0].Detail, "ä") != "" {
		t.Errorf("%d records, %v", len(records), err)
	}
}

func auditWithWork(t *testing.T, p *probe) {
	_ = p.InTx(t.Context(), func(tx TrustTx) error {
		if err := tx.Audit(t.Context(), exchange.AuditRecord{ID: newID(), Code: "x"}); err != nil {
			t.Error(err)
		}
		return errOurs
	})
	if _, ids := p.audited(exchange.AuditFilter{}); len(ids) != 0 {
		t.Errorf("records %v of work that was undone", ids)
	}
}
