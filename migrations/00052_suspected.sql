-- +goose Up

-- Whether the failures that opened the breaker of a back end may all have been caused by their messages.
ALTER TABLE back_ends ADD COLUMN suspected BIGINT NOT NULL DEFAULT 0;

-- After an outage a message waits for the earlier ones of its sender.
CREATE INDEX jobs_waiting ON jobs (kind, member_key, payload) WHERE state = 'scheduled';
