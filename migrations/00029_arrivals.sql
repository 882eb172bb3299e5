-- +goose Up

-- Lists of what came in: the sender's address and its domain, in lower case and cut at 320 bytes.
ALTER TABLE turns ADD COLUMN sender TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN sender_domain TEXT COLLATE "C" NOT NULL DEFAULT '';

UPDATE turns SET sender = substr(lower(COALESCE(message::json -> 'sender' ->> 'address', '')), 1, 320);
-- What follows the @ between user and domain: rtrim takes away what is not an @ from the end.
UPDATE turns SET sender_domain = substr(sender, length(rtrim(sender, replace(sender, '@', ''))) + 1) WHERE sender LIKE '@%@%';

-- A list reads ranges of these indexes, one for each place: agent, channel and state. A turn enters them when it has ended, so that
-- accepting one costs nothing here; the others are few and have turns_open. What all turns fulfil in the first one keeps planners from
-- it where a sender is asked for.
CREATE INDEX turns_place ON turns ((agent || ' ' || channel || ' ' || state), id)
    WHERE state NOT IN ('accepted', 'running', 'waiting', 'held') AND agent <> '';
CREATE INDEX turns_place_sender ON turns (sender, (agent || ' ' || channel || ' ' || state), id)
    WHERE state NOT IN ('accepted', 'running', 'waiting', 'held');
CREATE INDEX turns_place_domain ON turns (sender_domain, (agent || ' ' || channel || ' ' || state), id)
    WHERE state NOT IN ('accepted', 'running', 'waiting', 'held');
CREATE INDEX turns_place_principal ON turns (substr(principal, 1, 200), (agent || ' ' || channel || ' ' || state), id)
    WHERE state NOT IN ('accepted', 'running', 'waiting', 'held');

-- Turns in the order in which they were committed: the numbers become visible in their order, on however many nodes, so that who
-- reads by them misses none. The worker of the search index gives them.
CREATE TABLE arrivals (
    number  BIGINT NOT NULL PRIMARY KEY, -- from 1
    turn_id TEXT COLLATE "C" NOT NULL UNIQUE
);

INSERT INTO arrivals (number, turn_id) SELECT ROW_NUMBER() OVER (ORDER BY id), id FROM turns;
