-- +goose Up

-- How far operators have read: the newest message that an operator saw of a conversation, or, with an empty thread_key, of all. What is
-- older than some weeks counts as read, so that these rows end.
CREATE TABLE read_marks (
    owner_key  TEXT COLLATE "C" NOT NULL, -- exchange.SessionOwner
    thread_key TEXT COLLATE "C" NOT NULL, -- that of turns
    read_id    TEXT COLLATE "C" NOT NULL, -- of the turn
    PRIMARY KEY (owner_key, thread_key)
);

CREATE INDEX read_marks_newest ON read_marks (owner_key, read_id);
CREATE INDEX read_marks_thread ON read_marks (thread_key);
CREATE INDEX read_marks_end ON read_marks (read_id);
