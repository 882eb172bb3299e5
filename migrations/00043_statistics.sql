-- +goose Up

-- What came in within an hour, by agent and channel, and what became of it: counted from turns and replies, never beside them. took_N are
-- answers by how long they took (store.latencyBounds). Spend is in millionths of what the agents state as their cost.
CREATE TABLE channel_hours (
    hour      BIGINT NOT NULL, -- its beginning
    agent     TEXT COLLATE "C" NOT NULL,
    channel   TEXT COLLATE "C" NOT NULL,
    received  BIGINT NOT NULL,
    answered  BIGINT NOT NULL,
    silent    BIGINT NOT NULL,
    failed    BIGINT NOT NULL,
    refused   BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    held      BIGINT NOT NULL,
    waiting   BIGINT NOT NULL, -- accepted, running, or waiting for something
    spend     BIGINT NOT NULL,
    took_0    BIGINT NOT NULL,
    took_1    BIGINT NOT NULL,
    took_2    BIGINT NOT NULL,
    took_3    BIGINT NOT NULL,
    took_4    BIGINT NOT NULL,
    took_5    BIGINT NOT NULL,
    took_6    BIGINT NOT NULL,
    took_7    BIGINT NOT NULL,
    took_8    BIGINT NOT NULL,
    took_9    BIGINT NOT NULL,
    took_10   BIGINT NOT NULL,
    took_11   BIGINT NOT NULL,
    PRIMARY KEY (hour, agent, channel)
);

-- Hours that were or will be counted, also those in which nothing came. due_at: when it is counted again; 0 = settled.
CREATE TABLE counted_hours (
    hour   BIGINT NOT NULL PRIMARY KEY,
    due_at BIGINT NOT NULL
);

CREATE INDEX counted_hours_due ON counted_hours (due_at) WHERE due_at > 0;
