-- +goose Up

-- How far messages were looked through for what has reached its end: one row for each kind, period and group of agents. The next
-- portion begins after the id, and moves it in the same transaction.
CREATE TABLE retention_cursors (
    name       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    after_id   TEXT COLLATE "C" NOT NULL,
    updated_at BIGINT NOT NULL
);

-- Messages that were passed although they are old enough, because they had not ended or changed later.
CREATE TABLE retention_later (
    name    TEXT COLLATE "C" NOT NULL, -- of the cursor
    turn_id TEXT COLLATE "C" NOT NULL,
    due_at  BIGINT NOT NULL,
    PRIMARY KEY (name, turn_id)
);

CREATE INDEX retention_later_due ON retention_later (name, due_at);

-- Native forms that lost a message and go when no other one has them.
CREATE TABLE retention_originals (
    digest TEXT COLLATE "C" NOT NULL PRIMARY KEY
);

-- Erasures of persons. Who it is stands in the row only until the erasure is done; the receipt has keyed hashes and counts.
CREATE TABLE erasures (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7: what came later is not erased
    stage        TEXT COLLATE "C" NOT NULL,
    requested_by TEXT NOT NULL,
    requested_at BIGINT NOT NULL,
    ended_at     BIGINT NOT NULL,
    after_id     TEXT COLLATE "C" NOT NULL, -- how far the stage has come
    person       TEXT NOT NULL,             -- empty when it is done
    receipt      TEXT NOT NULL
);

CREATE INDEX erasures_open ON erasures (id) WHERE ended_at = 0;

CREATE TABLE erasure_turns (
    erasure_id TEXT COLLATE "C" NOT NULL,
    turn_id    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (erasure_id, turn_id)
);
