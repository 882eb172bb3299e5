package store

import (
	"context"
	"slices"
	"strconv"

	"inbox/exchange"
)

// ConversationHead is the newest message of a conversation.
type ConversationHead struct {
	Turn     exchange.TurnRecord // without its response
	Messages int                 // of the conversation; one more than MaxCountedOfThread stands for all that are more
	Unread   bool                // its operator did not read it
}

const (
	// MaxCountedOfThread is how far the messages of a conversation are counted.
	MaxCountedOfThread = 99
	// keysAtOnce is of how many messages one statement reads the conversations.
	keysAtOnce = 250
)

var selectHeads = `SELECT ` + turnColumns + `, '', COALESCE(m.read_id, ''),
	(SELECT COUNT(*) FROM (SELECT 1 FROM turns n WHERE n.thread_key = t.thread_key LIMIT ` + strconv.Itoa(MaxCountedOfThread+1) + `) AS counted)
	FROM turns t LEFT JOIN read_marks m ON m.owner_key = $51 AND m.thread_key = t.thread_key
	WHERE t.id IN (` + placeholders(1, loadedAtOnce) + `) AND NOT EXISTS (SELECT 1 FROM turns n WHERE n.thread_key = t.thread_key AND n.id > t.id)`

// lookedForHeads are how many messages are looked at for one page of conversations: few at first, which is enough where no conversation is very
// busy, and then many.
var lookedForHeads = []int{250, 1750}

var selectThreadKeys = `SELECT id, thread_key FROM turns WHERE id IN (` + placeholders(1, keysAtOnce) + `)`

// headReader reads heads for one operator.
type headReader struct {
	arrivalStore
	owner string          // ownerKeyOf; empty = for no one: everything is read
	until string          // what is not newer counts as read
	seen  map[string]bool // thread_key of the turns that were looked at
}

func (s arrivalStore) headsFor(ctx context.Context, owner exchange.SessionOwner) (r headReader, err error) {
	r.arrivalStore, r.seen = s, map[string]bool{}
	if owner != (exchange.SessionOwner{}) {
		r.owner = ownerKeyOf(owner)
		r.until, err = readUntil(ctx, s.engine.Reader(), r.owner, s.now())
	}
	return r, err
}

// firsts returns those of turns, newest first, whose conversations were not looked at before: of the others there is a newer message. A busy
// conversation costs little so.
func (r headReader) firsts(ctx context.Context, ids []string) (firsts []string, err error) {
	keys := map[string]string{}
	for chunk := range slices.Chunk(ids, keysAtOnce) {
		err := r.engine.Reader().Each(ctx, selectThreadKeys, padded(chunk, keysAtOnce), func(row row) error {
			var id, key string
			err := row.Scan(&id, &key)
			keys[id] = key
			return err
		})
		if err != nil {
			return nil, err
		}
	}

	for _, id := range ids {
		if key, there := keys[id]; there && !r.seen[key] {
			r.seen[key] = true
			firsts = append(firsts, id)
		}
	}
	return firsts, nil
}

// among returns the heads among turns, in the order of ids, of which there are loadedAtOnce at most. Other turns are not loaded.
func (r headReader) among(ctx context.Context, ids []string) ([]ConversationHead, error) {
	found := map[string]ConversationHead{}
	err := r.engine.Reader().Each(ctx, selectHeads, append(padded(ids, loadedAtOnce), r.owner), func(row row) (err error) {
		var one ConversationHead
		var read string
		one.Turn, err = scanTurn(row, &read, &one.Messages)
		one.Unread = r.owner != "" && one.Turn.ID > max(read, r.until)
		found[one.Turn.ID] = one
		return err
	})

	heads := make([]ConversationHead, 0, len(found))
	for _, id := range ids {
		if one, there := found[id]; there {
			heads = append(heads, one)
		}
	}
	return heads, err
}

// Conversations lists the heads of conversations that a filter selects, newest first, and says which of them an operator did not read. The text
// of the filter is not looked at. A page may have fewer than its limit although more follow: the returned cursor says so, empty = it was the
// last one. fault.Malformed for a state or a cursor that cannot be.
func (s arrivalStore) Conversations(ctx context.Context, filter exchange.ArrivalFilter, owner exchange.SessionOwner) (found []ConversationHead, next string, err error) {
	reader, err := s.headsFor(ctx, owner)
	if err != nil {
		return nil, "", err
	}

	limit := int(min(pageSize(filter.Limit), maxPage-1))
	next = filter.Before
	for _, looked := range lookedForHeads {
		list, err := selectArrivals(filter, next)
		if err != nil {
			return nil, "", err
		}
		ids, err := s.newest(ctx, list, looked+1)
		if err != nil {
			return nil, "", err
		}

		ids, next = exchange.NextPage(ids, looked, func(id string) string { return id })
		firsts, err := reader.firsts(ctx, ids)
		if err != nil {
			return nil, "", err
		}
		for chunk := range slices.Chunk(firsts, loadedAtOnce) {
			heads, err := reader.among(ctx, chunk)
			if err != nil {
				return nil, "", err
			}
			for i := range heads {
				if !filter.Selects(&heads[i].Turn) {
					continue
				}
				if len(found) == limit {
					return found, found[limit-1].Turn.ID, nil
				}
				found = append(found, heads[i])
			}
		}
		if next == "" {
			break
		}
	}
	return found, next, nil
}

// UnreadConversations lists the heads of conversations that an operator did not read, among the newest messages alone: newest first, at most
// MaxUnread+1 and at most the limit of the filter. Its text is not looked at. The count is that of CountUnread, whatever the filter.
func (s readStore) UnreadConversations(
	ctx context.Context, filter exchange.ArrivalFilter, owner exchange.SessionOwner,
) (found []ConversationHead, count exchange.UnreadCount, err error) {
	if _, err := selectArrivals(filter, ""); err != nil {
		return nil, count, err
	}
	reader, err := s.arrivals().headsFor(ctx, owner)
	if err != nil {
		return nil, count, err
	}
	ids, count, err := s.unread(ctx, reader.owner, reader.until)
	if err != nil {
		return nil, count, err
	}

	limit := int(pageSize(filter.Limit))
	for chunk := range slices.Chunk(ids, loadedAtOnce) {
		heads, err := reader.among(ctx, chunk)
		if err != nil {
			return nil, count, err
		}
		for i := range heads {
			if len(found) == limit {
				return found, count, nil
			}
			if turn := &heads[i].Turn; filter.Selects(turn) && inTime(filter, turn.ID) {
				found = append(found, heads[i])
			}
		}
	}
	return found, count, nil
}
