-- +goose Up

-- Who speaks and who brought the message are two. principal: who speaks. carrier: the principal of a caller that brought the message
-- of somebody else, such as a connector; empty = the speaker came without one. owner_key is that of the carrier, or of the speaker
-- without one: tasks are polled by who brought them. person_key is that of the speaker, for histories.
ALTER TABLE turns ADD COLUMN carrier TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN person_key TEXT COLLATE "C" NOT NULL DEFAULT ''; -- agent, principal

-- Of earlier messages by A2A that came with evidence about somebody, the principal is that of the caller: it stands for all people of a
-- connector, and so these messages are in nobody's history but that of their own conversation.
UPDATE turns SET person_shared = 0 WHERE person_shared = 1 AND channel = 'a2a' AND message LIKE '%"signed-attestation"%';
UPDATE turns SET person_key = owner_key;

DROP INDEX turns_shared;
CREATE INDEX turns_shared ON turns (person_key, id, thread_key, history_turns) WHERE person_shared = 1;

-- With all that counting the history of a party needs, so that it reads no row.
DROP INDEX turns_thread;
CREATE INDEX turns_thread ON turns (thread_key, id, history_turns, audience, person_key);
