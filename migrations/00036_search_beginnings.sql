-- +goose Up

-- The index of words once more, with beginnings of two to four letters and other windows. The server writes it anew in the background.
DROP TABLE search_words;
-- +only sqlite
CREATE VIRTUAL TABLE search_words USING fts5(said, subject, sender, tokenize = 'ascii', prefix = '2 3 4');
-- A deleted row leaves nothing behind.
INSERT INTO search_words (search_words, rank) VALUES ('secure-delete', 1);
-- +end

-- +only postgres
CREATE TABLE search_words (
    rowid BIGINT NOT NULL PRIMARY KEY,
    words tsvector NOT NULL
);

-- A search reads the list of what is pending each time, so it is short.
CREATE INDEX search_words_words ON search_words USING gin (words) WITH (gin_pending_list_limit = 256);
-- +end

UPDATE search_state SET rebuild_before = '~' WHERE EXISTS (SELECT 1 FROM arrivals);
