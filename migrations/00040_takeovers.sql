-- +goose Up

-- Conversations in which an operator writes as the agent. At most one of a conversation has not ended.
CREATE TABLE takeovers (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7 of when it began
    thread_key TEXT COLLATE "C" NOT NULL,             -- that of turns
    agent      TEXT NOT NULL,
    thread_id  TEXT NOT NULL,
    holder     TEXT NOT NULL,
    began_at   BIGINT NOT NULL,                       -- for this holder
    touched_at BIGINT NOT NULL,                       -- when the operators did something last
    ended_at   BIGINT NOT NULL,                       -- 0 = it has not
    ended_by   TEXT NOT NULL,
    note       TEXT NOT NULL,                         -- for the agent
    dropped    BIGINT NOT NULL,                       -- 1 = what waited then gets no answer
    told_turn  TEXT COLLATE "C" NOT NULL              -- the turn whose agent is told of the end; empty = none yet
);

CREATE UNIQUE INDEX takeovers_open ON takeovers (thread_key) WHERE ended_at = 0;
CREATE INDEX takeovers_thread ON takeovers (thread_key, id);
CREATE INDEX takeovers_ended ON takeovers (ended_at, id) WHERE ended_at > 0;
