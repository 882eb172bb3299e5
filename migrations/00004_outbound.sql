-- +goose Up

-- Answers that were edited or taken back, and of how many messages an answer consists on the wire.
ALTER TABLE replies ADD COLUMN posts BIGINT NOT NULL DEFAULT 1;
ALTER TABLE replies ADD COLUMN is_open BIGINT NOT NULL DEFAULT 1;  -- 0 = not for everybody; 1 = it may be, the adapter knows
ALTER TABLE replies ADD COLUMN revision BIGINT NOT NULL DEFAULT 0; -- edits so far
ALTER TABLE replies ADD COLUMN edited_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE replies ADD COLUMN deleted_at BIGINT NOT NULL DEFAULT 0;

-- Lists of answers are public ones.
DROP INDEX replies_agent;
CREATE INDEX replies_open ON replies (agent, id) WHERE is_open = 1 AND deleted_at = 0 AND notice >= 0;

-- action: empty = the answer itself, update, delete. bulk: 1 = to followers, who wait behind askers.
ALTER TABLE deliveries ADD COLUMN action TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE deliveries ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN bulk BIGINT NOT NULL DEFAULT 0;

-- Destinations that fail; one that takes a delivery has no row.
CREATE TABLE destinations (
    via          TEXT COLLATE "C" NOT NULL,
    destination  TEXT COLLATE "C" NOT NULL,
    paused_until BIGINT NOT NULL,
    opened       BIGINT NOT NULL, -- how often its breaker opened in a row
    failing_days BIGINT NOT NULL, -- different days with failures and no success between
    failed_day   BIGINT NOT NULL, -- the last of them, in days since 1970
    dead_at      BIGINT NOT NULL, -- 0 = it is not given up
    reason       TEXT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (via, destination)
);

CREATE INDEX destinations_updated ON destinations (updated_at);
