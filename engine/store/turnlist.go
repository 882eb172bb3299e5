package store

import (
	"context"
	"strconv"
	"strings"

	"inbox/exchange"
	"inbox/internal/fault"
)

// maxPage is the largest page of every list.
const maxPage = 500

func pageSize(limit int) int64 {
	if limit < 1 || limit > maxPage {
		limit = maxPage
	}
	return int64(limit)
}

// selection builds the WHERE of a list from the fields of a filter that are set.
type selection struct {
	where     []string
	arguments []any
}

// add adds a condition; each ? in it becomes the placeholder of the next value.
func (s *selection) add(condition string, values ...any) {
	for _, value := range values {
		s.arguments = append(s.arguments, value)
		condition = strings.Replace(condition, "?", "$"+strconv.Itoa(len(s.arguments)), 1)
	}
	s.where = append(s.where, condition)
}

func (s *selection) addWhen(set bool, condition string, values ...any) {
	if set {
		s.add(condition, values...)
	}
}

func (s *selection) sql() string {
	if len(s.where) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(s.where, " AND ")
}

// page adds order and limit; limits outside 1…500 become 500.
func (s *selection) page(order string, limit int) string {
	s.arguments = append(s.arguments, pageSize(limit))
	return " ORDER BY " + order + " LIMIT $" + strconv.Itoa(len(s.arguments)) + " + 0"
}

// newestOfReference keeps a turn only when it has a reference and no later one of its sender has the same.
const newestOfReference = `t.reference_key <> '' AND NOT EXISTS (SELECT 1 FROM turns n WHERE n.owner_key = t.owner_key
	AND n.reference_key = t.reference_key AND n.reference_key <> '' AND n.id > t.id)`

func selectTurns(f exchange.TurnFilter) (*selection, error) {
	var s selection
	switch {
	case f.Agent != "" && f.Principal != "":
		s.add("t.owner_key = ? AND t.agent = ? AND t.principal = ?", hashKey(f.Agent, f.Principal), f.Agent, f.Principal)
	case f.Agent != "":
		s.add("t.agent = ?", f.Agent)
	case f.Principal != "":
		s.add("t.principal = ?", f.Principal)
	}
	if f.Agent != "" && f.ThreadID != "" {
		s.add("t.thread_key = ?", hashKey(f.Agent, f.ThreadID))
	}
	s.addWhen(f.ThreadID != "", "t.thread_id = ?", f.ThreadID)
	s.addWhen(f.Reference != "", "t.reference_key = ? AND t.reference = ? AND t.reference_key <> ''", optionalKey(f.Reference), f.Reference)
	s.addWhen(f.ReceivedVia != "", "t.received_via = ?", f.ReceivedVia)
	if len(f.States) > 0 {
		values := make([]any, len(f.States))
		for i, state := range f.States {
			values[i] = state
		}
		s.add("t.state IN (?"+strings.Repeat(",?", len(values)-1)+")", values...)
	}
	s.addWhen(!f.UpdatedAfter.IsZero(), "t.updated_at > ?", micros(f.UpdatedAfter))
	s.addWhen(f.Latest, newestOfReference)
	return &s, s.addCursor(f.Before)
}

// addCursor reads "<updated_at microseconds>.<turn id>". Row values compare the way the list is ordered.
func (s *selection) addCursor(before string) error {
	if before == "" {
		return nil
	}
	at, id, found := strings.Cut(before, ".")
	updated, err := strconv.ParseInt(at, 10, 64)
	if err != nil || !found || !storable(id) {
		return fault.InField("cursor", "is not one that this server gave")
	}
	s.add("(t.updated_at, t.id) < (?, ?)", updated, id)
	return nil
}

// Turns lists turns with their responses, newest update first. A wrong cursor is fault.Malformed.
func (s *Store) Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error) {
	chosen, err := selectTurns(filter)
	if err != nil {
		return nil, err
	}
	query := `SELECT ` + turnColumns + `, COALESCE(r.response, '')` + turnsWithReplies + chosen.sql() +
		chosen.page("t.updated_at DESC, t.id DESC", filter.Limit)
	var turns []exchange.TurnRecord
	err = s.engine.reader().each(ctx, query, chosen.arguments, func(r row) error {
		turn, err := scanTurn(r)
		turns = append(turns, turn)
		return err
	})
	if err != nil {
		return nil, err
	}
	return turns, s.fillExpiry(ctx, turns)
}

// CountTurns counts what Turns would list without cursor and limit.
func (s *Store) CountTurns(ctx context.Context, filter exchange.TurnFilter) (int64, error) {
	filter.Before = ""
	chosen, err := selectTurns(filter)
	if err != nil {
		return 0, err
	}
	var count int64
	_, err = first(ctx, s.engine.reader(), `SELECT COUNT(*) FROM turns t`+chosen.sql(), chosen.arguments, &count)
	return count, err
}
