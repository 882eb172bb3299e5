package storetest

import (
	"context"
	"fmt"
	"time"
)

// LedgerSpan is the time over which FillLedger spreads the messages; it ends now.
const LedgerSpan = 365 * 24 * time.Hour

// Ledger tells FillLedger what to store.
type Ledger struct {
	Messages int
	Answers  bool // also an answer to each answered message, and its delivery; one delivery in five hundred is dead
}

// statements store a thousand messages with the numbers $1 to $2, and what belongs to them.
const (
	ledgerNumbers = `WITH RECURSIVE numbers(n) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < $2)`
	ledgerTurns   = ledgerNumbers + `,
		made AS (SELECT n, CASE WHEN n < $3 AND n % 2 = 0 THEN 'old' ELSE 'agent' || substr(CAST(100 + n * 7 % 20 AS TEXT), 2) END AS agent,
			CASE n / 3 % 3 WHEN 0 THEN 'email' WHEN 1 THEN 'activitypub' ELSE 'chat' END AS channel,
			CASE WHEN n % 5 = 0 THEN '@busy@busy.example' ELSE '@user' || (n * 31 % 50000) || '@domain' || (n * 31 % 500) || '.example' END AS sender,
			CASE WHEN n % 5000 = 17 THEN 'held' WHEN n % 100 = 3 THEN 'failed' WHEN n % 100 = 4 THEN 'silent' WHEN n % 1000 = 5 THEN 'refused' ELSE 'answered' END AS state
			FROM numbers)
		INSERT INTO turns (id, agent, recipient, received_via, principal, native_id, thread_id, reference, native_key, sender_key, thread_key, owner_key,
			reference_key, state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message, channel, sender, sender_domain)
		SELECT CAST($4 AS TEXT) || '-7000-8000-' || substr(CAST(1000000000000 + n AS TEXT), 2), agent, '@' || agent || '@inbox.example', 'email', 'idp.example ' || sender,
			'm' || n, 'thread ' || (n / 80 * 20 + n % 20), '', 'native ' || n, 'sender', 'thread ' || (n / 80 * 20 + n % 20), 'owner', '', state, '', 1, '', CAST($5 AS BIGINT), CAST($5 AS BIGINT), 'd' || n, '{}',
			'{"id":"m' || n || '","thread_id":"t","sender":{"address":"' || sender || '","display_name":"User ' || (n % 977) || '","auth_method":"none"},"recipient":"@' || agent ||
			'@inbox.example","received_via":"email","received_at":"2026-01-01T00:00:00Z","raw":{"ref":"","media_type":""},"parts":[{"kind":"text","content":"How do I fold a paper crane, and which paper is best? number' || n ||
			CASE WHEN n % 2 = 1 THEN ' hello' ELSE '' END || CASE WHEN agent = 'agent00' THEN ' alpha' ELSE '' END || CASE WHEN n % 100 = 7 THEN ' invoice' ELSE '' END ||
			CASE WHEN n % $6 = 5 THEN ' needle' ELSE '' END || '"}]}', channel, sender, CASE WHEN n % 5 = 0 THEN 'busy.example' ELSE 'domain' || (n * 31 % 500) || '.example' END
		FROM made`
	ledgerReplies = `INSERT INTO replies (turn_id, id, notice, agent, native_id, native_key, created_at, response)
		SELECT id, 'r' || id, 0, agent, 'r' || native_id, 'r' || native_key, accepted_at + 3000000, '{"parts":[{"kind":"text","content":"Square paper of 15 centimetres is best; fold it along both diagonals first."}]}'
		FROM turns WHERE id > CAST($1 AS TEXT) AND id < $2 AND state = 'answered'`
	ledgerDeliveries = `INSERT INTO deliveries (turn_id, id, reply_id, agent, channel, native_id, destination, address, data, state, reason, attempt, next_at, created_at, updated_at)
		SELECT id, 'd' || id, 'r' || id, agent, channel, 'r' || native_id, sender_domain, sender, '{}', CASE WHEN CAST(substr(native_id, 2) AS BIGINT) % 500 = 6 THEN 'dead' ELSE 'delivered' END,
			'', 1, 0, accepted_at + 3000000, accepted_at + 4000000
		FROM turns WHERE id > CAST($1 AS TEXT) AND id < $2 AND state = 'answered'`
)

// FillLedger stores messages of the last year, a thousand at a time, each thousand in a millisecond of its own. Half of all say hello, those to
// agent00 say alpha and no others do, one in a hundred says invoice and three say needle. Agent "old" had only the first hundredth, one
// message in five is of the same sender. Conversations have four messages, to one agent each. It is for benchmarks; do runs the statements of a thousand in one transaction.
func FillLedger(ctx context.Context, ledger Ledger, do func(ctx context.Context, statements []Statement) error) error {
	begun := time.Now().Add(-LedgerSpan)
	for from := 0; from < ledger.Messages; from += 1000 {
		at := begun.Add(time.Duration(from) * (LedgerSpan / time.Duration(ledger.Messages)))
		digits := fmt.Sprintf("%012x", at.UnixMilli())
		first := digits[:8] + "-" + digits[8:]
		statements := []Statement{
			{ledgerTurns, []any{int64(from), int64(from + 1000), int64(ledger.Messages / 100), first, at.UnixMicro(), int64(ledger.Messages / 3)}},
		}
		if ledger.Answers {
			statements = append(statements, Statement{ledgerReplies, []any{first, first + "-8"}}, Statement{ledgerDeliveries, []any{first, first + "-8"}})
		}
		if err := do(ctx, statements); err != nil {
			return fmt.Errorf("messages from %d: %w", from, err)
		}
	}
	return nil
}

// Statement is a statement with its arguments $1, $2 …
type Statement struct {
	Text      string
	Arguments []any
}
