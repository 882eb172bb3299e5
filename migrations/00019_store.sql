-- +goose Up

-- Payments that demands were claimed with: a second demand is not claimed with the same one. A row goes when its demand
-- ends without being met, because nothing is ever taken for that one.
CREATE TABLE demand_payments (
    payment_key TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- hash of network, asset, payer and nonce
    demand_id   TEXT COLLATE "C" NOT NULL,
    claimed_at  BIGINT NOT NULL
);

CREATE INDEX demand_payments_demand ON demand_payments (demand_id);
CREATE INDEX demand_payments_claimed ON demand_payments (claimed_at);

-- Lists read one page of one index, however many rows there are. latest: 1 = no later turn has the same owner and
-- reference. outcome: what the turn's reply is to its asker, empty = an answer or none; words in package exchange.
ALTER TABLE turns ADD COLUMN latest BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN outcome TEXT COLLATE "C" NOT NULL DEFAULT '';

UPDATE turns SET latest = 1 WHERE reference_key <> '' AND NOT EXISTS (SELECT 1 FROM turns n
    WHERE n.owner_key = turns.owner_key AND n.reference_key = turns.reference_key AND n.reference_key <> '' AND n.id > turns.id);

UPDATE turns SET outcome = (SELECT CASE
        WHEN r.response::json -> 'parts' -> -1 ->> 'kind' = 'policy' THEN
            CASE r.response::json -> 'parts' -> -1 -> 'policy' ->> 'kind'
            WHEN 'consent_required' THEN 'authorize' WHEN 'unauthorized' THEN 'authorize' WHEN 'payment_required' THEN 'pay'
            WHEN 'unavailable_for_legal_reasons' THEN 'unlawful' WHEN 'forbidden' THEN 'forbidden'
            WHEN 'too_many_requests' THEN 'unavailable' WHEN 'service_unavailable' THEN 'unavailable'
            ELSE CASE WHEN r.response::json ->> 'status' = 'input_required' THEN 'demand' ELSE 'unavailable' END END
        WHEN r.response::json ->> 'status' = 'input_required' THEN 'input'
        WHEN r.response::json ->> 'status' = 'failed' THEN 'failed'
        ELSE '' END
        FROM replies r WHERE r.id = turns.reply_id)
    WHERE reply_id IN (SELECT r.id FROM replies r
        WHERE r.response LIKE '%"policy"%' OR r.response LIKE '%"input_required"%' OR r.response LIKE '%"failed"%');

-- Tasks whose question was given up: the claims that say so stand in the documents of their adapter.
UPDATE turns SET outcome = 'given_up'
    WHERE state IN ('answered', 'refused', 'failed', 'silent', 'cancelled') AND (outcome IN ('authorize', 'pay', 'demand')
        OR outcome = 'input' AND state = 'answered')
    AND id IN (SELECT key FROM documents WHERE namespace = 'a2a.next' AND encoding = 'utf8' AND value LIKE 'cancel %');

-- Where the newest turn of a task stands for its asker; the same as exchange.StandingOf.
CREATE INDEX turns_tasks ON turns (owner_key, received_via, (CASE
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
    ELSE 'completed' END), updated_at, id) WHERE latest = 1;
CREATE INDEX turns_tasks_thread ON turns (thread_key, received_via, (CASE
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
    ELSE 'completed' END), updated_at, id) WHERE latest = 1;

-- What waits for the operator and what failed, of all agents and of one; what is not ended, of all threads and of one.
CREATE INDEX turns_state ON turns (state, updated_at, id) WHERE state = 'held' OR state = 'failed';
CREATE INDEX turns_state_agent ON turns (agent, state, updated_at, id) WHERE state = 'held' OR state = 'failed';
CREATE INDEX turns_open ON turns (id) WHERE state = 'accepted' OR state = 'running' OR state = 'waiting' OR state = 'held';
CREATE INDEX turns_thread_open ON turns (thread_key, id)
    WHERE state = 'accepted' OR state = 'running' OR state = 'waiting' OR state = 'held';
-- What one sender said by a program, in order of arrival.
CREATE INDEX turns_owner_arrival ON turns (owner_key, id) WHERE received_via = 'a2a';
DROP INDEX turns_updated;
-- Approvals are few among demands; the list of all tool requests is in order of creation.
CREATE INDEX demands_approvals ON demands (id) WHERE purpose = 'approval';
CREATE INDEX tool_requests_created ON tool_requests (created_at, id);
