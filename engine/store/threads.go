package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/engine/pipeline"
	"inbox/normalized"
)

// Turns that make the history of a party: those of a thread whose audience has it, and those that it wrote in all threads of an agent
// whose history follows the person. $1 = thread_key, $2 and $3 = bounds of the id.
const (
	inThread = `FROM turns WHERE thread_key = $1 AND id < $2 AND id >= $3 AND history_turns > 0`
	ofOwner  = `FROM turns WHERE person_key = $%d AND person_shared = 1 AND id < $2 AND id >= $3 AND history_turns > 0`
)

// audienceHas is the condition that the audience of a turn has one of the principals; their keys begin at placeholder from. An open
// message, and one that the party wrote, is decided by the index alone.
func audienceHas(turns string, from, people int) string {
	keys := placeholders(from, people)
	return `(` + turns + `.audience = '` + audienceOpen + `' OR ` + turns + `.person_key IN (` + keys + `) OR ` + turns + `.audience = '` + audienceNamed + `'
		AND EXISTS (SELECT 1 FROM turn_parties p WHERE p.turn_id = ` + turns + `.id AND p.party_key IN (` + keys + `)))`
}

// selectPage reads one end of a thread; $4 = agent, $5 = limit, then person_keys. The key of a thread stands for its
// agent and id; pages compare the agent all the same.
func selectPage(owners int, elsewhere bool, order string) string {
	var chosen strings.Builder
	fmt.Fprintf(&chosen, `SELECT id FROM (SELECT id `+inThread+` AND `+audienceHas("turns", 6, owners)+` ORDER BY id %s LIMIT $5 + 0) AS here`, order)
	for i := range owners {
		if elsewhere {
			fmt.Fprintf(&chosen, ` UNION SELECT id FROM (SELECT id `+ofOwner+` ORDER BY id %s LIMIT $5 + 0) AS other%d`, i+6, order, i)
		}
	}

	return fmt.Sprintf(`SELECT `+turnColumns+`, COALESCE(r.response, ''), COALESCE(r.id, ''), COALESCE(r.created_at, 0),
		t.history_turns FROM (%s) AS hit JOIN turns t ON t.id = hit.id LEFT JOIN replies r ON r.id = t.reply_id
		WHERE t.agent = $4 ORDER BY t.id %s LIMIT $5 + 0`, chosen.String(), order)
}

// selectTotal counts the turns of a history; person_keys from $4 on. It reads indexes and no row.
func selectTotal(owners int, elsewhere bool) string {
	rows := `SELECT history_turns ` + inThread + ` AND ` + audienceHas("turns", 4, owners)
	if elsewhere {
		rows += ` UNION ALL SELECT history_turns FROM turns WHERE person_key IN (` + placeholders(4, owners) + `)
			AND person_shared = 1 AND id < $2 AND id >= $3 AND thread_key <> $1`
	}
	return `SELECT CAST(COALESCE(SUM(history_turns), 0) AS BIGINT) FROM (` + rows + `) AS hit`
}

// threadScope tells the texts of a history apart: how many principals the party has, and whether what they wrote elsewhere counts.
type threadScope struct {
	owners    int
	elsewhere bool
}

// threadStatements are the three texts of a scope.
type threadStatements struct{ newest, oldest, total string }

// maxOwners bounds the senders that are looked up for one history. Numbers of owners are rounded up to a power of two,
// so that there are few texts to prepare.
const maxOwners = 16

var threadTexts = func() map[threadScope]threadStatements {
	texts := map[threadScope]threadStatements{}
	for owners := 1; owners <= maxOwners; owners *= 2 {
		for _, elsewhere := range []bool{false, true} {
			texts[threadScope{owners, elsewhere}] = threadStatements{
				selectPage(owners, elsewhere, "DESC"), selectPage(owners, elsewhere, "ASC"), selectTotal(owners, elsewhere),
			}
		}
	}
	return texts
}()

// ownerKeys returns the keys of the principals in a number for which there are texts: the last one stands several times.
func ownerKeys(agent string, principals []string) (keys []any) {
	for _, principal := range principals[:min(len(principals), maxOwners)] {
		keys = append(keys, hashKey(agent, principal))
	}
	for len(keys) > 0 && len(keys)&(len(keys)-1) != 0 {
		keys = append(keys, keys[len(keys)-1])
	}
	return keys
}

// errEnough ends a read whose caller needs no more rows.
var errEnough = errors.New("enough rows")

// ThreadExcerpt returns both ends of a thread and how many turns it has, without reading what is between; see
// pipeline.ThreadQuery. A short thread takes one statement, a long one three.
func (s turnStore) ThreadExcerpt(ctx context.Context, query pipeline.ThreadQuery) (pipeline.ThreadExcerpt, error) {
	var e pipeline.ThreadExcerpt
	owners := ownerKeys(query.Agent, query.Principals)
	if len(owners) == 0 {
		return e, nil // no party, no history
	}
	texts := threadTexts[threadScope{len(owners), query.Elsewhere}]
	key, before, since := hashKey(query.Agent, query.ThreadID), query.Before, firstID(query.Since)
	page := func(text, before string, limit int, enough func(pipeline.Exchange) bool) ([]pipeline.Exchange, bool, error) {
		return s.exchanges(ctx, text, slices.Concat([]any{key, before, since, query.Agent, int64(limit)}, owners), limit, query, enough)
	}
	tail, all, err := page(texts.newest, before, query.Tail, query.Enough)
	if err != nil {
		return e, err
	}

	slices.Reverse(tail)
	e.Tail = tail
	for _, exchange := range tail {
		e.Total += exchange.Turns()
		before = min(before, exchange.Turn.ID)
	}

	if all {
		return e, nil
	}
	if e.Head, _, err = page(texts.oldest, before, query.Head, nil); err != nil {
		return e, err
	}

	var older int // than the tail: what happens meanwhile among the newest cannot make the sum wrong
	_, err = first(ctx, s.engine.Reader(), texts.total, slices.Concat([]any{key, before, since}, owners), &older)
	e.Total += older
	return e, err
}

// exchanges reads until limit turns are there or the caller has enough. It reports whether there was nothing more to read.
func (s turnStore) exchanges(
	ctx context.Context, text string, arguments []any, limit int, query pipeline.ThreadQuery, enough func(pipeline.Exchange) bool,
) (found []pipeline.Exchange, all bool, err error) {
	if limit <= 0 {
		return nil, false, nil
	}
	turns := 0
	err = s.engine.Reader().Each(ctx, text, arguments, func(r row) error {
		if turns >= limit {
			return errEnough
		}
		e, err := scanExchange(r)
		if err != nil {
			return err
		}

		e.For(query.Principals, query.OthersRead)
		found = append(found, e)
		if turns += e.Turns(); enough != nil && enough(e) {
			turns = limit
		}

		return nil
	})
	if errors.Is(err, errEnough) {
		return found, false, nil
	}

	return found, len(found) < limit, err
}

func scanExchange(r row) (e pipeline.Exchange, err error) {
	var at, turns int64
	if e.Turn, err = scanTurn(r, &e.ReplyID, &at, &turns); err != nil {
		return e, err
	}

	e.At = instant(at)
	e.Withdrawn = turns == 1 && e.Answered()
	return e, nil
}

// firstID is at most the id of every turn that was accepted at the instant or later: a UUIDv7 begins with its
// milliseconds (RFC 9562, section 5.7).
func firstID(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	digits := fmt.Sprintf("%012x", max(since.UnixMilli(), 0))
	return digits[:8] + "-" + digits[8:]
}

// The oldest turn of a thread is what transactions that look at its pace wait for one after the other: a newer one
// could be another one for each of them.
const (
	oldestOfThread = `SELECT id FROM turns WHERE thread_key = $1 AND agent = $2 AND thread_id = $3 ORDER BY id LIMIT 1`
	newestOfThread = `SELECT message FROM turns WHERE thread_key = $1 AND agent = $2 AND thread_id = $3
		AND state <> 'held' ORDER BY id DESC LIMIT 1`
	recentOfThread = `SELECT COUNT(*) FROM (SELECT 1 FROM turns WHERE thread_key = $1 AND agent = $2 AND thread_id = $3
		AND principal = $4 AND id >= $5 AND accepted_at > $6 LIMIT 100) AS recent`
)

// Pace tells how a thread with another agent goes; see pipeline.Tx. It counts no further than 100.
func (t turnTx) Pace(ctx context.Context, agent, principal, threadID string, since time.Time) (pipeline.Pace, error) {
	var pace pipeline.Pace
	var id, message string
	thread := []any{hashKey(agent, threadID), cleaned(agent), cleaned(threadID)}
	found, err := first(ctx, t.sql, oldestOfThread, thread, &id)
	if err != nil || !found {
		return pace, err
	}

	if err := t.holdTurn(ctx, id); err != nil {
		return pace, err
	}
	if found, err = first(ctx, t.sql, newestOfThread, thread, &message); err != nil {
		return pace, err
	}
	if pace.Chain, err = chainOf(found, message); err != nil {
		return pace, fmt.Errorf("decode the newest message of a thread: %w", err)
	}

	var recent int64
	_, err = first(ctx, t.sql, recentOfThread, append(thread, cleaned(principal), firstID(since), micros(since)), &recent)
	if err != nil {
		return pace, err
	}

	var total int64
	_, err = first(ctx, t.sql, recentOfThread, append(thread[:3:3], cleaned(principal), "", int64(-1)), &total)
	pace.Recent, pace.Total = int(recent), int(total)
	return pace, err
}

func chainOf(found bool, message string) (*normalized.AgentChain, error) {
	if !found {
		return nil, nil
	}
	var m normalized.Message
	err := json.Unmarshal([]byte(message), &m)
	return m.RecipientCapabilities.AgentChain, err
}
