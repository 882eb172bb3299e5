-- +goose Up

-- One row for each message to one agent. The *_key columns are hashes of natural keys, which may be longer than an
-- index entry may be; queries compare the columns themselves as well.
CREATE TABLE turns (
    id              TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    agent           TEXT COLLATE "C" NOT NULL,
    recipient       TEXT COLLATE "C" NOT NULL,
    received_via    TEXT COLLATE "C" NOT NULL,
    principal       TEXT COLLATE "C" NOT NULL,
    native_id       TEXT COLLATE "C" NOT NULL,
    thread_id       TEXT COLLATE "C" NOT NULL,
    reference       TEXT COLLATE "C" NOT NULL,
    native_key      TEXT COLLATE "C" NOT NULL, -- native_id
    sender_key      TEXT COLLATE "C" NOT NULL, -- recipient, received_via, principal
    thread_key      TEXT COLLATE "C" NOT NULL, -- agent, thread_id
    owner_key       TEXT COLLATE "C" NOT NULL, -- agent, principal
    reference_key   TEXT COLLATE "C" NOT NULL, -- reference; empty without one
    state           TEXT COLLATE "C" NOT NULL,
    reason          TEXT NOT NULL,
    attempt         BIGINT NOT NULL,
    reply_id        TEXT COLLATE "C" NOT NULL, -- empty until answered
    accepted_at     BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    original_digest TEXT COLLATE "C" NOT NULL,
    route           TEXT NOT NULL,
    message         TEXT NOT NULL
);

-- The natural key (recipient, received_via, principal, native_id), led by the native id to serve look-ups of it.
CREATE UNIQUE INDEX turns_natural ON turns (native_key, sender_key);
CREATE INDEX turns_thread ON turns (thread_key, id);
-- Only turns with a reference are looked up by their owner; a page of this index for every mail would be waste.
CREATE INDEX turns_owner ON turns (owner_key, reference_key, id) WHERE reference_key <> '';
CREATE INDEX turns_updated ON turns (updated_at, id);

-- Native messages as they came, stored once. encoding: utf8 = body is the bytes; base64; blob = in the blob store.
CREATE TABLE originals (
    digest     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    media_type TEXT NOT NULL,
    encoding   TEXT COLLATE "C" NOT NULL,
    body       TEXT NOT NULL
);

CREATE TABLE events (
    turn_id TEXT COLLATE "C" NOT NULL,
    seq     BIGINT NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL,
    body    TEXT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (turn_id, seq)
);

CREATE TABLE replies (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    turn_id    TEXT COLLATE "C" NOT NULL UNIQUE REFERENCES turns (id),
    agent      TEXT COLLATE "C" NOT NULL,
    native_id  TEXT COLLATE "C" NOT NULL,
    native_key TEXT COLLATE "C" NOT NULL, -- native_id; empty without one
    created_at BIGINT NOT NULL,
    response   TEXT NOT NULL
);

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

CREATE INDEX deliveries_turn ON deliveries (turn_id, id);
CREATE INDEX deliveries_state ON deliveries (state, id);
CREATE INDEX deliveries_destination ON deliveries (destination, id);

-- state: ready = may be claimed when due; blocked = an earlier job of its partition lives; running = leased; dead.
-- A job that is done has no row.
CREATE TABLE jobs (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    kind          TEXT COLLATE "C" NOT NULL,
    partition_of  TEXT COLLATE "C" NOT NULL,
    partition_key TEXT COLLATE "C" NOT NULL, -- kind, partition_of; empty without partition
    state         TEXT COLLATE "C" NOT NULL,
    attempt       BIGINT NOT NULL,
    run_at        BIGINT NOT NULL,
    lease_owner   TEXT COLLATE "C" NOT NULL,
    lease_until   BIGINT NOT NULL,
    fence         BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    reason        TEXT NOT NULL,
    payload       TEXT NOT NULL
);

CREATE INDEX jobs_ready ON jobs (kind, run_at, id) WHERE state = 'ready';
CREATE INDEX jobs_leased ON jobs (kind, lease_until) WHERE state = 'running';
CREATE INDEX jobs_partition ON jobs (partition_key, id) WHERE partition_key <> '' AND state <> 'dead';
-- The hard guard behind the claim: two nodes can never run two jobs of one partition.
CREATE UNIQUE INDEX jobs_running ON jobs (partition_key) WHERE partition_key <> '' AND state = 'running';
CREATE INDEX jobs_dead ON jobs (id) WHERE state = 'dead';

-- Private durable documents of the adapters, shared by all nodes.
CREATE TABLE documents (
    namespace  TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    encoding   TEXT COLLATE "C" NOT NULL, -- as in originals: utf8 or base64
    value      TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, key)
);

CREATE INDEX documents_expiry ON documents (expires_at) WHERE expires_at > 0;

CREATE TABLE tokens (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL,
    agent      TEXT COLLATE "C" NOT NULL, -- empty = all agents
    hash       TEXT COLLATE "C" NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT NOT NULL
);
