-- +goose Up

-- The ids by which an operator looks for a message beside those of the server. conversation: what its peer calls the conversation,
-- such as a session or a context, where that is not the thread's id; empty = the thread's. request: the header X-Request-Id of the
-- answer to the HTTP request that brought the message; empty = it came another way.
ALTER TABLE turns ADD COLUMN conversation TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN request TEXT COLLATE "C" NOT NULL DEFAULT '';

-- Of what came before, longer names are left out: an entry of an index has a bound.
UPDATE turns SET conversation = CASE channel
        WHEN 'a2a' THEN COALESCE(route::json ->> 'context', '')
        WHEN 'tasks' THEN COALESCE(route::json ->> 'task_session', '')
        ELSE COALESCE(route::json ->> 'session', '') END
    WHERE channel IN ('a2a', 'chat', 'bridge', 'tasks') AND route LIKE '{"%';
UPDATE turns SET conversation = '' WHERE conversation <> '' AND (conversation = thread_id OR LENGTH(conversation) > 200);

CREATE INDEX turns_conversation ON turns (conversation, id) WHERE conversation <> '';
CREATE INDEX turns_request ON turns (request, id) WHERE request <> '';
-- The id of the trace of a header traceparent (W3C Trace Context, section 3.2.2).
CREATE INDEX turns_trace ON turns (substr(trace, 4, 32), id) WHERE trace <> '';

-- Led by the reference instead of the owner, the same index also finds the task of an id, whoever sent it.
DROP INDEX turns_owner;
CREATE INDEX turns_reference ON turns (reference_key, owner_key, id) WHERE reference_key <> '';
