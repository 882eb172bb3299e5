-- +goose Up

-- Webhooks of peers: every change of a watched turn makes one job for each of its watches, in the same transaction.
CREATE TABLE watches (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7
    agent         TEXT COLLATE "C" NOT NULL,
    principal     TEXT NOT NULL,
    reference     TEXT NOT NULL,
    name          TEXT NOT NULL,                         -- the peer's own name for it
    owner_key     TEXT COLLATE "C" NOT NULL,             -- as in turns
    reference_key TEXT COLLATE "C" NOT NULL,             -- as in turns
    name_key      TEXT COLLATE "C" NOT NULL,
    created_at    BIGINT NOT NULL,
    data          TEXT NOT NULL,                         -- the adapter's own, secrets sealed
    UNIQUE (owner_key, reference_key, name_key)
);

CREATE INDEX watches_created ON watches (created_at);

ALTER TABLE turns ADD COLUMN watched BIGINT NOT NULL DEFAULT 0; -- 1 = there is or was a watch
