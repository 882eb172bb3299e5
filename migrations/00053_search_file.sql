-- +goose Up

-- Of which search.db this database is: the file has the same stamp. Empty = none; PostgreSQL has the words in its own tables.
ALTER TABLE search_state ADD COLUMN stamp TEXT COLLATE "C" NOT NULL DEFAULT '';
-- Up to this number of arrivals turns were looked for that have had no answer for a minute.
ALTER TABLE search_state ADD COLUMN late BIGINT NOT NULL DEFAULT 0;

UPDATE search_state SET late = number;

-- Numbers of mails that were deleted, until their words have left the index.
CREATE TABLE mail_gone (
    number BIGINT NOT NULL PRIMARY KEY
);
