-- +goose Up

-- What the operator is told of. Events are counted in the transaction that causes them: one row for each kind and subject, such as an
-- agent, whatever their number. total - digested are those that no digest has told yet.
CREATE TABLE notice_tallies (
    kind          TEXT COLLATE "C" NOT NULL,
    subject       TEXT COLLATE "C" NOT NULL,
    total         BIGINT NOT NULL,
    digested      BIGINT NOT NULL,
    previous      BIGINT NOT NULL, -- digested before the last digest
    window_from   BIGINT NOT NULL, -- a burst is many in one window
    window_count  BIGINT NOT NULL,
    window_before BIGINT NOT NULL, -- of the window before it
    last_at       BIGINT NOT NULL,
    newest        TEXT NOT NULL,   -- the three newest that no digest has told, as JSON
    second        TEXT NOT NULL,
    third         TEXT NOT NULL,
    PRIMARY KEY (kind, subject)
);

-- What lasts: a breaker that is open, a disk that is full, a burst of events. One row for the newest episode of each kind and
-- subject, shared by all nodes; it is told when it begins and when it ends.
CREATE TABLE notice_conditions (
    kind       TEXT COLLATE "C" NOT NULL,
    subject    TEXT COLLATE "C" NOT NULL,
    state      TEXT NOT NULL,   -- open, ended, closed
    reason     TEXT NOT NULL,
    since      BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL, -- when a node saw it last
    ended_at   BIGINT NOT NULL,
    told_at    BIGINT NOT NULL, -- its beginning; 0 = nothing was said of this episode
    last_told  BIGINT NOT NULL, -- beginning of any episode
    base       BIGINT NOT NULL, -- of a burst: total of its tally before it
    PRIMARY KEY (kind, subject)
);

-- What was told. The bytes of a webhook are final here, so that a repeat is the same.
CREATE TABLE notices (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    kind       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    phase      TEXT NOT NULL, -- began, ended, digest, test
    title      TEXT NOT NULL,
    text       TEXT NOT NULL,
    body       TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- The way of a notice to one address. A mail or a post is a delivery of the turn.
CREATE TABLE notice_ways (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    notice_id  TEXT COLLATE "C" NOT NULL,
    address    TEXT NOT NULL,
    state      TEXT NOT NULL, -- pending, sent, failed
    reason     TEXT NOT NULL,
    turn_id    TEXT COLLATE "C" NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE INDEX notice_ways_notice ON notice_ways (notice_id);
CREATE INDEX notice_ways_turn ON notice_ways (turn_id);

-- One row: the hour in which messages are counted, and when the last digest was made.
CREATE TABLE notice_state (
    id         BIGINT NOT NULL PRIMARY KEY,
    hour_from  BIGINT NOT NULL,
    hour_count BIGINT NOT NULL,
    digest_at  BIGINT NOT NULL
);
INSERT INTO notice_state (id, hour_from, hour_count, digest_at) VALUES (1, 0, 0, 0);
