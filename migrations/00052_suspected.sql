-- +goose Up

-- Whether the failures that opened the breaker of a back end may all have been caused by their messages.
ALTER TABLE back_ends ADD COLUMN suspected BIGINT NOT NULL DEFAULT 0;
