-- +goose Up

-- Addresses to which no mail is sent any more.
CREATE TABLE mail_suppressions (
    address     TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- lower-case
    kind        TEXT COLLATE "C" NOT NULL,
    reason      TEXT NOT NULL,
    delivery_id TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL
);

-- Mails that an address did not take, until they are too old to count.
CREATE TABLE mail_failures (
    address     TEXT COLLATE "C" NOT NULL,
    delivery_id TEXT COLLATE "C" NOT NULL,
    failed_at   BIGINT NOT NULL,
    PRIMARY KEY (address, delivery_id)
);

CREATE INDEX mail_failures_failed ON mail_failures (failed_at);
