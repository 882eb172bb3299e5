-- +goose Up

-- Back ends of agents that failed: one row for the newest outage of each, shared by all nodes. closed_at = 0 while the
-- breaker is open; probe_at is when the next run may ask whether the back end is back, moved by whoever takes the probe.
CREATE TABLE back_ends (
    agent      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    since      BIGINT NOT NULL, -- when the outage began
    opened     BIGINT NOT NULL, -- probes that failed, and the failure that opened it
    probe_at   BIGINT NOT NULL,
    closed_at  BIGINT NOT NULL,
    reason     TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);
