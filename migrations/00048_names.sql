-- +goose Up

-- Conversations of A2A and chat that began before their ids were made of names (exchange.ConversationName) go on: they are found by what
-- their owners call them. A context that the server made up was the thread's own id and has no name beside it. New turns are not in the
-- index: their ids begin with c- and have no point, which stood before the tag of a context.
CREATE INDEX turns_earlier ON turns (person_key, conversation, id) WHERE (channel = 'a2a' OR channel = 'chat') AND (substr(thread_id, 1, 2) <> 'c-' OR substr(thread_id, length(thread_id) - 16, 1) = '.');

-- The conversation with another agent, where it began before then; empty = its id is made of names.
ALTER TABLE dispatches ADD COLUMN earlier_thread TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE dispatches SET earlier_thread = COALESCE(call::json ->> 'thread_id', '') WHERE call LIKE '{"%';
CREATE INDEX dispatches_earlier ON dispatches (earlier_thread) WHERE earlier_thread <> '';
