-- +goose Up

-- When a token ends by itself, and when it was shown last.
ALTER TABLE tokens ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN used_at BIGINT NOT NULL DEFAULT 0;

-- Browsers in which an operator is signed in. The secret is in the browser alone.
CREATE TABLE console_sessions (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7
    hash       TEXT COLLATE "C" NOT NULL UNIQUE,      -- of the secret
    name       TEXT NOT NULL,
    token_id   TEXT COLLATE "C" NOT NULL,             -- '' where a login service began it
    subject    TEXT COLLATE "C" NOT NULL,             -- '' where a token began it
    members    TEXT NOT NULL,                         -- JSON list
    created_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL,
    proven_at  BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    address    TEXT NOT NULL,
    agent      TEXT NOT NULL
);

CREATE INDEX console_sessions_owner ON console_sessions (token_id, subject, id);
CREATE INDEX console_sessions_end ON console_sessions (expires_at);
