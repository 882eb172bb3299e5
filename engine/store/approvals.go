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
	query, arguments := selectApprovals(filter)
	return s.demands(ctx, query, arguments...)
}

func selectApprovals(filter exchange.ApprovalFilter) (query string, arguments []any) {
	query = selectDemand + `WHERE purpose = '` + policypart.PurposeApproval + `'`
	add := func(condition, value string) {
		if value != "" {
			arguments = append(arguments, cleaned(value))
			query += " AND " + condition + " $" + strconv.Itoa(len(arguments))
		}
	}
	id := "id"
	if !filter.All {
		query += ` AND ` + openStatus + ` AND expires_at > 0` // a range of the index demands_open
		id = "id || ''"                                       // few are open: sorting them is cheaper than walking through all demands in order
	}
	if filter.CodeHash != "" {
		query += ` AND code_hash <> ''` // as the index demands_code says it
		id = "id || ''"
	}
	add("code_hash =", filter.CodeHash)
	add("agent =", filter.Agent)
	add(id+" <", filter.Before)
	arguments = append(arguments, pageSize(filter.Limit))
	return query + " ORDER BY " + id + " DESC LIMIT $" + strconv.Itoa(len(arguments)) + " + 0", arguments
}
