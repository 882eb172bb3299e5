-- +goose Up

-- Programs elsewhere that fetch the answers of agents themselves.
CREATE TABLE bridge_clients (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    updated_at BIGINT NOT NULL,
    secret     TEXT NOT NULL, -- signs what is sent to the callback; sealed, empty without one
    client     TEXT NOT NULL
);

-- What waits for them. An acknowledged item stays as an empty row for a while, so that a repeat after a crash does not
-- bring it back.
CREATE TABLE bridge_items (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    client_id    TEXT COLLATE "C" NOT NULL,
    position     TEXT COLLATE "C" NOT NULL, -- UUIDv7 of its arrival
    session_id   TEXT COLLATE "C" NOT NULL,
    status       TEXT COLLATE "C" NOT NULL,
    leased_until BIGINT NOT NULL,
    acked_at     BIGINT NOT NULL, -- 0 = pending
    item         TEXT NOT NULL
);

CREATE INDEX bridge_items_pending ON bridge_items (client_id, position) WHERE acked_at = 0;
CREATE INDEX bridge_items_acked ON bridge_items (acked_at) WHERE acked_at > 0;

-- Conversations on our own surfaces. owner_key is a hash of the owner, which may be longer than an index entry may be.
CREATE TABLE sessions (
    owner_key    TEXT COLLATE "C" NOT NULL,
    id           TEXT COLLATE "C" NOT NULL,
    owner        TEXT NOT NULL,             -- principal of whoever may see it
    agent        TEXT COLLATE "C" NOT NULL,
    thread_id    TEXT COLLATE "C" NOT NULL,
    title        TEXT NOT NULL,
    connector    TEXT NOT NULL,
    conversation TEXT NOT NULL,
    imported     BIGINT NOT NULL,           -- messages that came by an import
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (owner_key, id)
);

CREATE INDEX sessions_updated ON sessions (owner_key, updated_at, id);

-- Which session an outside conversation is. map_key hashes owner, connector, conversation and agent, or owner and the key
-- under which the row was imported.
CREATE TABLE session_map (
    map_key    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner_key  TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL
);

CREATE INDEX session_map_session ON session_map (owner_key, session_id);

-- What was said in a session before it came here, each message as it came.
CREATE TABLE session_messages (
    owner_key  TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    number     BIGINT NOT NULL, -- from 1
    message    TEXT NOT NULL,
    PRIMARY KEY (owner_key, session_id, number)
);
