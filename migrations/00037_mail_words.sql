-- +goose Up

-- Kept mail is found by an index of words. A mail has a number when its words are in the index; 0 = it waits for that. The server gives
-- the numbers in the background.
ALTER TABLE mails ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE mails DROP COLUMN words;

CREATE UNIQUE INDEX mails_number ON mails (number) WHERE number > 0;
CREATE INDEX mails_waiting ON mails (id) WHERE number = 0;

-- rowid = 2 * number.
-- +only sqlite
CREATE VIRTUAL TABLE mail_words USING fts5(said, subject, sender, tokenize = 'ascii', prefix = '2 3 4');
INSERT INTO mail_words (mail_words, rank) VALUES ('secure-delete', 1);
-- +end

-- +only postgres
CREATE TABLE mail_words (
    rowid BIGINT NOT NULL PRIMARY KEY,
    words tsvector NOT NULL
);

CREATE INDEX mail_words_words ON mail_words USING gin (words) WITH (gin_pending_list_limit = 256);
-- +end
