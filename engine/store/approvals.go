package store

import (
	"context"
	"strconv"

	"inbox/exchange"
	"inbox/policypart"
)

// Approvals lists demands that somebody else than their asker decides, newest first, at most 500; the open ones unless
// filter.All. Open ones may have expired without having been swept.
func (s *Store) Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]policypart.Issuance, error) {
	query, arguments := selectDemand+`WHERE purpose = '`+policypart.PurposeApproval+`'`, []any{}
	add := func(condition, value string) {
		arguments = append(arguments, cleaned(value))
		query += " AND " + condition + " $" + strconv.Itoa(len(arguments))
	}
	if !filter.All {
		query += ` AND ` + openStatus
	}
	if filter.Agent != "" {
		add("agent =", filter.Agent)
	}
	if filter.Before != "" {
		add("id <", filter.Before)
	}
	arguments = append(arguments, pageSize(filter.Limit))
	return s.demands(ctx, query+" ORDER BY id DESC LIMIT $"+strconv.Itoa(len(arguments))+" + 0", arguments...)
}
