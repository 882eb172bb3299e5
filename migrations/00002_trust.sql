-- +goose Up

-- Turns learn how many entries of a history they make, whose history they may appear in, and with what they were
-- taken up again.
ALTER TABLE turns ADD COLUMN history_turns BIGINT NOT NULL DEFAULT 1; -- 0 = held, 1 = question alone, 2 = with answer
ALTER TABLE turns ADD COLUMN person_shared BIGINT NOT NULL DEFAULT 0; -- 1 = the agent's history follows the person
ALTER TABLE turns ADD COLUMN resumed TEXT NOT NULL DEFAULT '';        -- {"policy_resolution","received_trace"}

UPDATE turns SET history_turns = CASE
    WHEN state = 'held' THEN 0
    WHEN reply_id <> '' AND state <> 'silent' THEN 2
    ELSE 1 END;

DROP INDEX turns_thread;
CREATE INDEX turns_thread ON turns (thread_key, id, history_turns);
-- With all that the length of a history needs, so that counting it reads no row.
CREATE INDEX turns_shared ON turns (owner_key, id, thread_key, history_turns) WHERE person_shared = 1;

-- A turn may send demands before its answer: notice 0 = the answer, 1 and up = the demands. SQLite cannot drop the
-- old UNIQUE (turn_id), so replies and deliveries, which refer to them, are made anew.
CREATE TABLE replies_before AS SELECT * FROM replies;
CREATE TABLE deliveries_before AS SELECT * FROM deliveries;
DROP TABLE deliveries;
DROP TABLE replies;

CREATE TABLE replies (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    turn_id    TEXT COLLATE "C" NOT NULL REFERENCES turns (id),
    notice     BIGINT NOT NULL,
    agent      TEXT COLLATE "C" NOT NULL,
    native_id  TEXT COLLATE "C" NOT NULL,
    native_key TEXT COLLATE "C" NOT NULL, -- native_id; empty without one
    created_at BIGINT NOT NULL,
    response   TEXT NOT NULL,
    UNIQUE (turn_id, notice)
);

INSERT INTO replies (id, turn_id, notice, agent, native_id, native_key, created_at, response)
    SELECT id, turn_id, 0, agent, native_id, native_key, created_at, response FROM replies_before;

CREATE INDEX replies_native ON replies (native_key) WHERE native_key <> '';
CREATE INDEX replies_agent ON replies (agent, id);

CREATE TABLE deliveries (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    turn_id     TEXT COLLATE "C" NOT NULL,
    reply_id    TEXT COLLATE "C" NOT NULL REFERENCES replies (id),
    agent       TEXT COLLATE "C" NOT NULL,
    via         TEXT COLLATE "C" NOT NULL,
    native_id   TEXT COLLATE "C" NOT NULL,
    destination TEXT COLLATE "C" NOT NULL,
    address     TEXT NOT NULL,
    data        TEXT NOT NULL,
    state       TEXT COLLATE "C" NOT NULL,
    reason      TEXT NOT NULL,
    attempt     BIGINT NOT NULL,
    next_at     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);

INSERT INTO deliveries (id, turn_id, reply_id, agent, via, native_id, destination, address, data, state, reason,
    attempt, next_at, created_at, updated_at)
    SELECT id, turn_id, reply_id, agent, via, native_id, destination, address, data, state, reason,
    attempt, next_at, created_at, updated_at FROM deliveries_before;

CREATE INDEX deliveries_turn ON deliveries (turn_id, id);
CREATE INDEX deliveries_state ON deliveries (state, id);
CREATE INDEX deliveries_destination ON deliveries (destination, id);

DROP TABLE deliveries_before;
DROP TABLE replies_before;

-- Demands that agents made, with their frozen terms. status: issued and claimed are open; resolved, denied, expired
-- and dropped are the end.
CREATE TABLE demands (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    state_hash TEXT COLLATE "C" NOT NULL UNIQUE, -- of the state in the address, which is stored nowhere
    turn_id    TEXT COLLATE "C" NOT NULL,
    agent      TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    purpose    TEXT COLLATE "C" NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    code_hash  TEXT COLLATE "C" NOT NULL, -- empty without one
    issued_at  BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    terms      TEXT NOT NULL, -- everything about the demand that never changes and is not looked for
    resolution TEXT NOT NULL, -- empty until settled
    notes      TEXT NOT NULL
);

CREATE INDEX demands_turn ON demands (turn_id, id);
CREATE INDEX demands_code ON demands (code_hash, id) WHERE code_hash <> '';
CREATE INDEX demands_open ON demands (expires_at, id) WHERE status IN ('issued', 'claimed');

-- Decisions about trust. Rows are in the order of their ids, which are UUIDv7, and end by age and by number.
CREATE TABLE audit (
    id        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    at        BIGINT NOT NULL,
    code      TEXT COLLATE "C" NOT NULL,
    turn_id   TEXT COLLATE "C" NOT NULL,
    agent     TEXT COLLATE "C" NOT NULL,
    principal TEXT NOT NULL,
    detail    TEXT NOT NULL
);

CREATE INDEX audit_code ON audit (code, id);
CREATE INDEX audit_turn ON audit (turn_id, id) WHERE turn_id <> '';

-- Identities that were linked with consent on both sides; a person has at least two.
CREATE TABLE person_identities (
    principal_key TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- principal
    principal     TEXT COLLATE "C" NOT NULL,
    person_id     TEXT COLLATE "C" NOT NULL,
    issuer        TEXT NOT NULL,
    subject       TEXT NOT NULL,
    method        TEXT NOT NULL,
    address       TEXT NOT NULL,
    linked_at     BIGINT NOT NULL
);

CREATE INDEX person_identities_person ON person_identities (person_id, principal_key);

-- Calls of our agents to other agents.
CREATE TABLE dispatches (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    turn_id    TEXT COLLATE "C" NOT NULL,
    number     BIGINT NOT NULL,
    state      TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    call       TEXT NOT NULL, -- the exchange.Dispatch as it was made
    response   TEXT NOT NULL  -- empty until done
);

CREATE INDEX dispatches_turn ON dispatches (turn_id, number, id);

ALTER TABLE tokens ADD COLUMN scope TEXT COLLATE "C" NOT NULL DEFAULT ''; -- empty = peer, admin
