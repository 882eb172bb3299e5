package store

import (
	"context"

	"inbox/engine/pipeline"
)

// The partition of a turn's job begins with its kind and its agent; names have no blanks. The next byte after a blank ends
// the range.
const countWaiting = `SELECT COUNT(*) FROM (SELECT 1 FROM jobs WHERE kind = $1 AND state <> 'dead'
	AND partition_of >= $2 AND partition_of < $3 LIMIT $4 + 0) AS waiting`

// WaitingTurns counts the turns of an agent, or of all when agent is empty, that wait for their run, up to most.
func (s *Store) WaitingTurns(ctx context.Context, agent string, most int) (int, error) {
	from := pipeline.JobKind + " "
	if agent != "" {
		from = pipeline.Partition(agent, "")
	}
	var count int64
	err := s.engine.reader().each(ctx, countWaiting, []any{pipeline.JobKind, from, from[:len(from)-1] + "!", int64(most)}, func(r row) error {
		return r.Scan(&count)
	})
	return int(count), err
}
