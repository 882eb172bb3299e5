package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// turnStore finds turns, their timelines and their threads.
type turnStore struct{ *shared }

const turnsWithReplies = ` FROM turns t LEFT JOIN replies r ON r.id = t.reply_id `

const selectTurn = `SELECT ` + turnColumns + `, COALESCE(r.response, '')` + turnsWithReplies + `WHERE t.id = $1`

// Turn returns one turn with its response; fault.NotFound when there is none.
func (s turnStore) Turn(ctx context.Context, id string) (exchange.TurnRecord, error) {
	turn, found, err := turnFrom(ctx, s.engine.Reader(), selectTurn, id)
	if err == nil && !found {
		err = notFound("turn")
	}
	return turn, err
}

func turnFrom(ctx context.Context, from querier, query string, arguments ...any) (exchange.TurnRecord, bool, error) {
	var turn exchange.TurnRecord
	found := false
	err := from.Each(ctx, query, arguments, func(r row) (err error) {
		found = true
		turn, err = scanTurn(r)
		return err
	})
	return turn, found, err
}

// scanTurn reads turnColumns, the response and then the extra columns.
func scanTurn(r row, extra ...any) (exchange.TurnRecord, error) {
	var t exchange.TurnRecord
	var accepted, updated, shared int64
	var resumed, audience, route, message, response string
	columns := append([]any{
		&t.ID, &t.Agent, &t.Principal, &t.ThreadID, &t.Reference, &t.State, &t.Reason, &t.Attempt,
		&t.ReplyID, &accepted, &updated, &shared, &resumed, &t.Network, &t.Channel, &t.Trace, &t.Request, &t.Carrier, &audience, &route, &message, &response,
	}, extra...)
	if err := r.Scan(columns...); err != nil {
		return t, err
	}

	t.AcceptedAt, t.UpdatedAt, t.Route = instant(accepted), instant(updated), rawJSON(route)
	t.Shared, t.Audience.Open = shared == 1, audience == audienceOpen
	if err := decodeStored("message", t.ID, &t.Message, message); err != nil {
		return t, err
	}

	t.Channel = channelOf(t.Channel, t.Message.ReceivedVia, route)
	if err := fillResumed(&t, resumed); err != nil || response == "" {
		return t, err
	}

	t.Response = new(normalized.Response)
	return t, decodeStored("response", t.ID, t.Response, response)
}

// decodeStored reads a message or a response of a row with its own reader, which checks the syntax too: json.Unmarshal would do so before it. What
// cannot be read is a defect of ours; to the reader it is a document of a peer.
func decodeStored(what, turnID string, into json.Unmarshaler, stored string) error {
	if err := into.UnmarshalJSON([]byte(stored)); err != nil {
		return fmt.Errorf("decode %s of turn %s: %s", what, turnID, err.Error())
	}
	return nil
}

const selectOriginal = `SELECT media_type, encoding, body FROM originals WHERE digest = $1`

// Original returns the native form of a message; Body is nil when the bytes are in the blob store. fault.NotFound
// when there is none.
func (s turnStore) Original(ctx context.Context, digest string) (pipeline.Original, error) {
	original := pipeline.Original{Digest: digest}
	var encoding, body string
	found, err := first(ctx, s.engine.Reader(), selectOriginal, []any{digest}, &original.MediaType, &encoding, &body)
	if err == nil && !found {
		err = notFound("original")
	}
	if err != nil {
		return pipeline.Original{}, err
	}

	original.Body, err = decodeBody(encoding, body)
	return original, err
}

const selectTurnOf = `SELECT id FROM turns WHERE native_key = $1 AND native_id = $2 AND principal = $3 ORDER BY id DESC LIMIT 1`

// TurnOf returns the newest turn of a principal whose message has the native id, whatever agent it went to; fault.NotFound
// when there is none.
func (s turnStore) TurnOf(ctx context.Context, principal, nativeID string) (exchange.TurnRecord, error) {
	if !storable(principal) || !storable(nativeID) {
		return exchange.TurnRecord{}, notFound("turn")
	}
	id := ""
	err := s.engine.Reader().Each(ctx, selectTurnOf, []any{hashKey(nativeID), nativeID, principal}, func(r row) error { return r.Scan(&id) })
	if err != nil {
		return exchange.TurnRecord{}, err
	}

	return s.Turn(ctx, id)
}

// channelOf returns the channel of a turn, also where an older node wrote the row while nodes are replaced one by one: it knows no
// channels. The rule is that of migration 00020, which holds the same for rows from before.
func channelOf(written, receivedVia, route string) string {
	switch {
	case written != "":
		return written
	case receivedVia != "a2a":
		return receivedVia
	case strings.HasPrefix(route, `{"chat":true`):
		return "chat"
	case strings.HasPrefix(route, `{"surface":`):
		return "bridge"
	case route == `{"dispatch":"fetched"}`:
		return exchange.ChannelLocal
	}
	return receivedVia
}

// maxPage is the largest page of every list, and the row after it that reports whether there is more.
const maxPage = 500 + 1

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

// plainWord is what may be written into a text as it is.
var plainWord = regexp.MustCompile(`^[a-z0-9]{1,32}$`)

// addWord compares a column with a word of ours, never of a peer. It is written out, because a partial index is chosen by
// what the text says.
func (s *selection) addWord(column, word string) {
	if plainWord.MatchString(word) {
		s.add(column + " = '" + word + "'")
	} else {
		s.addWhen(word != "", column+" = ?", word)
	}
}

func (s *selection) sql() string {
	if len(s.where) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(s.where, " AND ")
}

// page adds order and limit; limits outside of those of pageSize become the largest.
func (s *selection) page(order string, limit int) string {
	s.arguments = append(s.arguments, pageSize(limit))
	return " ORDER BY " + order + " LIMIT $" + strconv.Itoa(len(s.arguments)) + " + 0"
}

// standing is where the newest turn of a task stands for its asker, in the words of the indexes turns_tasks and
// turns_tasks_thread: exchange.StandingOf in SQL.
const standing = `(CASE
    WHEN state = 'accepted' THEN CASE WHEN reply_id <> '' OR attempt > 0 THEN 'working' ELSE 'submitted' END
    WHEN state = 'running' THEN 'working'
    WHEN state = 'silent' THEN 'completed'
    WHEN state = 'cancelled' OR outcome = 'given_up' THEN 'cancelled'
    WHEN state = 'held' THEN 'authorize'
    WHEN state = 'waiting' AND reason = 'tool (authorization)' THEN 'authorize'
    WHEN state = 'waiting' AND (reason = 'dispatch' OR reason = 'tool' OR substr(reason, 1, 5) = 'tool ') THEN 'working'
    WHEN outcome = 'authorize' THEN 'authorize'
    WHEN outcome = 'pay' OR outcome = 'demand' THEN 'input'
    WHEN outcome = 'unlawful' OR outcome = 'forbidden' AND state = 'refused' THEN 'refused'
    WHEN outcome = 'forbidden' OR outcome = 'unavailable' THEN 'failed'
    WHEN state = 'waiting' THEN CASE WHEN substr(reason, 1, 7) = 'payment' OR substr(reason, 1, 5) = 'input' THEN 'input'
        WHEN substr(reason, 1, 4) = 'tool' THEN 'working' ELSE 'authorize' END
    WHEN state = 'refused' THEN 'refused'
    WHEN state = 'failed' OR outcome = 'failed' THEN 'failed'
    WHEN outcome = 'input' THEN 'input'
    ELSE 'completed' END)`

// openStates are the states of turns that have not ended, as the indexes turns_open and turns_thread_open say it.
const openStates = `(t.state = 'accepted' OR t.state = 'running' OR t.state = 'waiting' OR t.state = 'held')`

// maxCounted is where CountTurns ends.
const maxCounted = 10_000

// turnList is the text of a list of turns: arms that each read one range of one index in the order of the list, a page
// at most, and are merged afterwards. Arms share their arguments.
type turnList struct {
	selection
	arms      []string // conditions; there is at least one, which may be empty
	byArrival bool
}

func selectTurns(f exchange.TurnFilter) (*turnList, error) {
	list := &turnList{byArrival: f.ByArrival}
	s := &list.selection
	owner := cmp.Or(f.Carrier, f.Principal)
	switch {
	case f.Agent != "" && owner != "" && f.ThreadID != "": // a thread is the smaller of the two: its index is to be read
		s.add("t.owner_key || '' = ?", hashKey(f.Agent, owner))
	case f.Agent != "" && owner != "":
		s.add("t.owner_key = ?", hashKey(f.Agent, owner))
	case f.Agent != "":
		s.add("t.agent = ?", f.Agent)
	case f.Principal != "":
		s.add("t.principal = ?", f.Principal)
	}

	s.addWhen(f.Agent != "" && f.Principal != "", "t.principal = ?", f.Principal)
	switch {
	case f.Agent != "" && f.ThreadID != "" && f.Conversation != "": // see chooseArms
	case f.Agent != "" && f.ThreadID != "":
		s.add("t.thread_key = ?", hashKey(f.Agent, f.ThreadID))
	default:
		s.addWhen(f.ThreadID != "", "t.thread_id = ?", f.ThreadID)
	}

	s.addWhen(f.Reference != "", "t.reference_key = ? AND t.reference_key <> ''", optionalKey(f.Reference))
	s.addWhen(f.MessageID != "", "t.native_key = ?", hashKey(f.MessageID))
	s.addWord("t.received_via", f.ReceivedVia)
	s.addWhen(!f.UpdatedAfter.IsZero(), "t.updated_at > ?", micros(f.UpdatedAfter))
	s.addWhen(!f.AcceptedAfter.IsZero(), "t.id >= ?", firstID(f.AcceptedAfter))
	s.addWhen(f.Latest, "t.latest = 1")
	s.addWhen(f.Dropped, "t.id IN (SELECT turn_id FROM unanswered WHERE account = '"+counted+"')")
	if err := list.chooseArms(f); err != nil {
		return nil, err
	}

	return list, s.addCursor(f.Before, f.ByArrival)
}

// chooseArms splits the list where the index that serves it has the order of the list only below one value. The values are
// written out, because partial indexes are chosen by the text of a condition.
func (l *turnList) chooseArms(f exchange.TurnFilter) error {
	l.arms = []string{""}
	states := make([]string, 0, len(f.States))
	for _, state := range f.States {
		if !slices.Contains(turnStates, state) {
			return fault.InField("state", "is no state of a turn")
		}
		states = append(states, "t.state = '"+state+"'")
	}

	switch {
	case f.Standing != "" && !slices.Contains(exchange.Standings, f.Standing):
		return fault.InField("standing", "is no standing of a turn")
	case f.Standing != "":
		l.arms = []string{standing + " = '" + f.Standing + "'"}
	case f.Latest && f.Reference == "":
		l.arms = nil
		for _, one := range exchange.Standings {
			l.arms = append(l.arms, standing+" = '"+one+"'")
		}
	}

	switch {
	case len(states) == 0:
	case len(l.arms) == 1 && l.arms[0] == "" && !f.ByArrival:
		l.arms = states
	default:
		l.add("(" + strings.Join(states, " OR ") + ")")
	}

	if f.Agent != "" && f.ThreadID != "" && f.Conversation != "" {
		l.splitConversation(f)
	}

	if len(states) > 0 && f.ByArrival && !slices.ContainsFunc(f.States, exchange.Terminal) {
		l.add(openStates)
	}

	return nil
}

// splitConversation reads each arm in the thread of the owner, and in those of the people whose messages it brought.
func (l *turnList) splitConversation(f exchange.TurnFilter) {
	l.arguments = append(l.arguments, hashKey(f.Agent, f.ThreadID), conversationName(f.Conversation, ""))
	own := "t.thread_key = $" + strconv.Itoa(len(l.arguments)-1)
	brought := "t.conversation = $" + strconv.Itoa(len(l.arguments)) + " AND t.conversation <> '' AND t.carrier <> ''"

	var split []string
	for _, arm := range l.arms {
		for _, where := range []string{own, brought} {
			if arm != "" {
				where = arm + " AND " + where
			}
			split = append(split, where)
		}
	}
	l.arms = split
}

// turnStates are the states that a list may be restricted to.
var turnStates = exchange.States()

// readCursor reads a cursor of a time in microseconds and an id, with a dot between.
func readCursor(written string) (at int64, id string, err error) {
	number, id, found := strings.Cut(written, ".")
	at, err = strconv.ParseInt(number, 10, 64)
	if err != nil || !found || !storable(id) {
		return 0, "", fault.InField("before", "is not one that this server gave")
	}
	return at, id, nil
}

// addCursor reads exchange.TurnCursor. Row values compare the way the list is ordered.
func (s *selection) addCursor(before string, byArrival bool) error {
	if before == "" {
		return nil
	}
	updated, id, err := readCursor(before)
	if err != nil {
		return err
	}

	if byArrival {
		s.add("t.id < ?", id)
	} else {
		s.add("(t.updated_at, t.id) < (?, ?)", updated, id)
	}

	return nil
}

func (l *turnList) order(table string) string {
	if l.byArrival {
		return " ORDER BY " + table + "id DESC"
	}
	return " ORDER BY " + table + "updated_at DESC, " + table + "id DESC"
}

// merged returns the arms as one table with the columns id and updated_at; $limit bounds each of them.
func (l *turnList) merged(limit string) string {
	texts := make([]string, len(l.arms))
	for i, arm := range l.arms {
		conditions := l.where
		if arm != "" {
			conditions = append(slices.Clone(conditions), arm)
		}

		where := ""
		if len(conditions) > 0 {
			where = " WHERE " + strings.Join(conditions, " AND ")
		}

		texts[i] = `SELECT id, updated_at FROM (SELECT t.id, t.updated_at FROM turns t` + where + l.order("t.") + ` LIMIT ` + limit + `) AS arm` + strconv.Itoa(i)
	}

	return strings.Join(texts, " UNION ALL ")
}

// page is the text of one page.
func (l *turnList) page(limit int) string {
	l.arguments = append(l.arguments, pageSize(limit))
	most := "$" + strconv.Itoa(len(l.arguments)) + " + 0"
	hits := l.merged(most)
	if len(l.arms) > 1 {
		hits = `SELECT id, updated_at FROM (` + hits + `) AS arms` + l.order("") + ` LIMIT ` + most
	}

	return `SELECT ` + turnColumns + `, COALESCE(r.response, '') FROM (` + hits + `) AS hit JOIN turns t ON t.id = hit.id
		LEFT JOIN replies r ON r.id = t.reply_id` + l.order("hit.") + ` LIMIT ` + most
}

// Turns lists turns with their responses, newest update first. A wrong cursor is fault.Malformed.
func (s turnStore) Turns(ctx context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error) {
	chosen, err := selectTurns(filter)
	if err != nil {
		return nil, err
	}

	query := chosen.page(filter.Limit)
	var turns []exchange.TurnRecord
	err = s.engine.Reader().Each(ctx, query, chosen.arguments, func(r row) error {
		turn, err := scanTurn(r)
		turns = append(turns, turn)
		return err
	})
	if err != nil {
		return nil, err
	}

	if filter.Dropped {
		return turns, s.quotas().fillEnds(ctx, turns, exchange.StateRefused)
	}
	return turns, s.quotas().fillExpiry(ctx, turns)
}

// CountTurns counts what Turns would list without cursor and limit. It counts no further than 10,000: what is more costs
// as much as it is long, and no one reads it.
func (s turnStore) CountTurns(ctx context.Context, filter exchange.TurnFilter) (int64, error) {
	filter.Before = ""
	chosen, err := selectTurns(filter)
	if err != nil {
		return 0, err
	}

	var count int64
	_, err = first(ctx, s.engine.Reader(), chosen.count(), chosen.arguments, &count)
	return count, err
}

func (l *turnList) count() string {
	l.arguments = append(l.arguments, int64(maxCounted))
	most := "$" + strconv.Itoa(len(l.arguments)) + " + 0"
	return `SELECT COUNT(*) FROM (SELECT 1 FROM (` + l.merged(most) + `) AS arms LIMIT ` + most + `) AS counted`
}

// The partition of a turn's job begins with its kind and its agent; names have no blanks. The next byte after a blank ends
// the range.
const countWaiting = `SELECT COUNT(*) FROM (SELECT 1 FROM jobs WHERE kind = $1 AND state <> 'dead'
	AND partition_of >= $2 AND partition_of < $3 LIMIT $4 + 0) AS waiting`

// WaitingTurns counts the turns of an agent, or of all when agent is empty, that wait for their run, up to most.
func (s turnStore) WaitingTurns(ctx context.Context, agent string, most int) (int, error) {
	from := pipeline.JobKind + " "
	if agent != "" {
		from = pipeline.Partition(agent, "")
	}

	var count int64
	err := s.engine.Reader().Each(ctx, countWaiting, []any{pipeline.JobKind, from, from[:len(from)-1] + "!", int64(most)}, func(r row) error {
		return r.Scan(&count)
	})

	return int(count), err
}
