package store

import (
	"context"

	"inbox/exchange"
)

// Values of turns.audience.
const (
	audienceOpen  = "*" // everyone in the conversation
	audienceNamed = "+" // those in turn_parties
)

func audienceMark(audience exchange.Audience) string {
	switch {
	case audience.Open:
		return audienceOpen
	case len(audience.Parties) > 0:
		return audienceNamed
	}
	return ""
}

const insertParty = `INSERT INTO turn_parties (turn_id, party_key, principal) VALUES ($1, $2, $3) ON CONFLICT (turn_id, party_key) DO NOTHING`

// insertParties stores whom a turn was meant for beside its sender. Most are meant for no one else, and have no row.
func (t turnTx) insertParties(ctx context.Context, turn exchange.TurnRecord) error {
	if audienceMark(turn.Audience) != audienceNamed {
		return nil
	}
	for _, principal := range turn.Audience.Parties[:min(len(turn.Audience.Parties), exchange.MaxParties)] {
		if !storable(principal) {
			continue // no proof has such a name
		}
		if err := t.sql.Do(ctx, insertParty, turn.ID, hashKey(turn.Agent, principal), principal); err != nil {
			return err
		}
	}
	return nil
}

// The reply's id wins: it is ours, while a message's id is whatever its sender wrote. Then the party's own message.
var selectContinued = `SELECT t.id, t.thread_id, t.reference, t.received_via, t.channel, t.route, t.message FROM (
		SELECT r.turn_id AS id, 0 AS rank FROM replies r
			WHERE r.native_key = $1 AND r.native_key <> '' AND r.native_id = $2 AND r.agent = $3
		UNION ALL
		SELECT m.id, CASE WHEN m.person_key = $4 THEN 1 ELSE 2 END FROM turns m WHERE m.native_key = $1 AND m.native_id = $2 AND m.agent = $3
	) AS hit JOIN turns t ON t.id = hit.id WHERE ` + audienceHas("t", 4, 1) + ` ORDER BY hit.rank, t.id LIMIT 16`

// ContinuedMessage finds what a party may continue; see exchange.Threads.
func (s turnStore) ContinuedMessage(ctx context.Context, agent, channel, principal string, nativeIDs []string) (exchange.ThreadEntry, bool, error) {
	for _, nativeID := range nativeIDs {
		entry, found, err := s.entry(ctx, channel, selectContinued, nativeID, hashKey(nativeID), nativeID, agent, hashKey(agent, principal))
		if found || err != nil {
			return entry, found, err
		}
	}
	return exchange.ThreadEntry{}, false, nil
}

const selectReplied = `SELECT t.id, t.thread_id, t.reference, t.received_via, t.channel, t.route, t.message FROM replies r JOIN turns t ON t.id = r.turn_id
	WHERE r.native_key = $1 AND r.native_key <> '' AND r.native_id = $2 AND r.agent = $3 ORDER BY r.id LIMIT 4`

// RepliedMessage finds the message that a reply answers; see exchange.Threads.
func (s turnStore) RepliedMessage(ctx context.Context, agent, channel, nativeID string) (exchange.ThreadEntry, bool, error) {
	return s.entry(ctx, channel, selectReplied, nativeID, hashKey(nativeID), nativeID, agent)
}

const selectSentEntry = `SELECT id, thread_id, reference, received_via, channel, route, message FROM turns
	WHERE native_key = $1 AND native_id = $2 AND agent = $3 AND principal = $4 ORDER BY id LIMIT 1`

// SentMessage finds a message of a principal; see exchange.Threads.
func (s turnStore) SentMessage(ctx context.Context, agent, principal, nativeID string) (exchange.ThreadEntry, bool, error) {
	if !storable(principal) {
		return exchange.ThreadEntry{}, false, nil
	}
	return s.entry(ctx, "", selectSentEntry, nativeID, hashKey(nativeID), nativeID, agent, principal)
}

// entry reads the first row of a channel; of any where channel is empty.
func (s turnStore) entry(ctx context.Context, channel, query, nativeID string, arguments ...any) (entry exchange.ThreadEntry, found bool, err error) {
	if nativeID == "" || !storable(nativeID) {
		return entry, false, nil
	}

	var message string
	err = s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		var one exchange.ThreadEntry
		var via, written, route, body string
		if err := r.Scan(&one.TurnID, &one.ThreadID, &one.Reference, &via, &written, &route, &body); err != nil || found {
			return err
		}
		if channel == "" || channelOf(written, via, route) == channel {
			one.Route = rawJSON(route)
			entry, message, found = one, body, true
		}
		return nil
	})
	if err != nil || !found {
		return exchange.ThreadEntry{}, false, err
	}

	if err := decodeStored("message", entry.TurnID, &entry.Message, message); err != nil {
		return entry, false, err
	}
	return entry, true, nil
}

const selectParties = `SELECT principal FROM turn_parties WHERE turn_id = $1 ORDER BY principal LIMIT $2 + 0`

// PartiesOf lists the principals whom a message was meant for beside its sender, where they are named.
func (s turnStore) PartiesOf(ctx context.Context, turnID string) (parties []string, err error) {
	return column[string](ctx, s.engine.Reader(), selectParties, []any{turnID, int64(exchange.MaxParties)})
}

// Whom the newest messages of a thread were meant for; $1 = thread_key, $2 = limit.
const (
	selectAudiences = `SELECT id, principal, sender, audience, person_shared FROM turns WHERE thread_key = $1 AND agent = $3 AND thread_id = $4 ORDER BY id DESC LIMIT $2 + 0`
	selectAddressed = `SELECT p.turn_id, p.principal FROM (SELECT id FROM turns WHERE thread_key = $1 AND agent = $3 AND thread_id = $4 ORDER BY id DESC LIMIT $2 + 0) AS hit
		JOIN turn_parties p ON p.turn_id = hit.id ORDER BY p.turn_id, p.principal`
)

// Audiences lists whom the newest messages of a conversation were meant for, newest first.
func (s turnStore) Audiences(ctx context.Context, agent, threadID string, limit int) (list []exchange.MessageAudience, err error) {
	if !storable(agent) || !storable(threadID) {
		return nil, nil
	}

	arguments := []any{hashKey(agent, threadID), pageSize(limit), agent, threadID}
	place := map[string]int{}
	err = s.engine.Reader().Each(ctx, selectAudiences, arguments, func(r row) error {
		var one exchange.MessageAudience
		var audience string
		var shared int64
		if err := r.Scan(&one.TurnID, &one.Principal, &one.Address, &audience, &shared); err != nil {
			return err
		}
		one.Audience.Open, one.Shared = audience == audienceOpen, shared == 1
		place[one.TurnID] = len(list)
		list = append(list, one)
		return nil
	})
	if err != nil {
		return nil, err
	}

	err = s.engine.Reader().Each(ctx, selectAddressed, arguments, func(r row) error {
		var turnID, principal string
		if err := r.Scan(&turnID, &principal); err != nil {
			return err
		}
		if at, known := place[turnID]; known { // a message may have come between the two statements
			list[at].Audience.Parties = append(list[at].Audience.Parties, principal)
		}
		return nil
	})
	return list, err
}
