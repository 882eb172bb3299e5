-- +goose Up

-- The operator's lists of who is kept out or let in, and the stop words of senders. A removed row stays for a while, so
-- that every node hears of it: nodes read what changed after the version that they know.
CREATE TABLE list_entries (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    entry_key  TEXT COLLATE "C" NOT NULL UNIQUE, -- list, kind, target, agent
    list       TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    target     TEXT COLLATE "C" NOT NULL,
    agent      TEXT COLLATE "C" NOT NULL,
    effect     TEXT COLLATE "C" NOT NULL,
    reason     TEXT NOT NULL,
    source     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    removed_at BIGINT NOT NULL, -- 0 = in force
    version    BIGINT NOT NULL
);

CREATE INDEX list_entries_version ON list_entries (version, id);
CREATE INDEX list_entries_list ON list_entries (list, id);
CREATE INDEX list_entries_removed ON list_entries (removed_at) WHERE removed_at > 0;

-- One row. Who changes a list takes it first, so that versions become visible in their order.
CREATE TABLE list_version (
    one     BIGINT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);

INSERT INTO list_version (one, version) VALUES (1, 0);

-- What limits have counted. Nodes add to a row once in a while, never once for each message.
CREATE TABLE counters (
    counter_key TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    amount      BIGINT NOT NULL,
    ends_at     BIGINT NOT NULL
);

CREATE INDEX counters_ends ON counters (ends_at);
