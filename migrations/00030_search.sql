-- +goose Up

-- Turns whose words changed since they were written into the search index. A row is written by the transaction that changed them and
-- removed by the one that wrote the index.
CREATE TABLE search_pending (
    id      TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- in the order of the changes
    turn_id TEXT COLLATE "C" NOT NULL,
    answer  BIGINT NOT NULL -- 1 = the answer is another one
);

-- One row: the last number of arrivals, and before which id turns are still to be indexed anew; empty = none.
CREATE TABLE search_state (
    one            BIGINT NOT NULL PRIMARY KEY,
    number         BIGINT NOT NULL,
    rebuild_before TEXT COLLATE "C" NOT NULL
);

INSERT INTO search_state (one, number, rebuild_before) SELECT 1, COALESCE(MAX(number), 0), CASE WHEN COUNT(*) > 0 THEN '~' ELSE '' END FROM arrivals;

-- Words of turns, two rows for each: rowid = 2 * number is the question, 2 * number + 1 the answer. The words are those of package
-- store, folded and taken apart there, so that both databases find the same.
-- +only sqlite
CREATE VIRTUAL TABLE search_words USING fts5(said, subject, sender, tokenize = 'ascii', prefix = '2 3');
-- A deleted row leaves nothing behind.
INSERT INTO search_words (search_words, rank) VALUES ('secure-delete', 1);
-- +end

-- +only postgres
CREATE TABLE search_words (
    rowid BIGINT NOT NULL PRIMARY KEY,
    words tsvector NOT NULL
);

CREATE INDEX search_words_words ON search_words USING gin (words);
-- +end
