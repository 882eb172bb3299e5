-- +goose Up

-- What lists of messages read: the place of a message that has ended, which is its agent, channel and state, and its sender as in turns. The
-- worker of the search index writes them in batches, so that a message does not enter four indexes of turns while its sender waits.
-- place: empty = the message has not ended, or the worker has not seen its end. principal: its first 200 characters.

-- +only sqlite
ALTER TABLE arrivals ADD COLUMN place TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE arrivals ADD COLUMN sender TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE arrivals ADD COLUMN sender_domain TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE arrivals ADD COLUMN principal TEXT COLLATE "C" NOT NULL DEFAULT '';

-- What follows takes their pages.
DROP INDEX turns_place;
DROP INDEX turns_place_sender;
DROP INDEX turns_place_domain;
DROP INDEX turns_place_principal;
-- +end

-- Each statement commits, so that nodes of the release before wait for none of them: one transaction would hold arrivals while it waits for
-- turns, and a list holds turns while it waits for arrivals. A migration that was interrupted runs again.
-- +only postgres
-- +goose NO TRANSACTION
ALTER TABLE arrivals
    ADD COLUMN IF NOT EXISTS place TEXT COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS sender TEXT COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS sender_domain TEXT COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS principal TEXT COLLATE "C" NOT NULL DEFAULT '';
-- +end

UPDATE arrivals SET sender = t.sender, sender_domain = t.sender_domain, principal = substr(t.principal, 1, 200),
    place = CASE WHEN t.state IN ('accepted', 'running', 'waiting', 'held') THEN '' ELSE t.agent || ' ' || t.channel || ' ' || t.state END
    FROM turns t WHERE t.id = arrivals.turn_id;

-- What all rows fulfil in the first one keeps planners from it where a sender is asked for.
CREATE INDEX IF NOT EXISTS arrivals_place ON arrivals (place, turn_id) WHERE place <> '' AND turn_id <> '';
CREATE INDEX IF NOT EXISTS arrivals_sender ON arrivals (sender, place, turn_id) WHERE place <> '';
CREATE INDEX IF NOT EXISTS arrivals_domain ON arrivals (sender_domain, place, turn_id) WHERE place <> '';
CREATE INDEX IF NOT EXISTS arrivals_principal ON arrivals (principal, place, turn_id) WHERE place <> '';
CREATE INDEX IF NOT EXISTS arrivals_unplaced ON arrivals (turn_id) WHERE place = '';

-- +only postgres
DROP INDEX IF EXISTS turns_place;
DROP INDEX IF EXISTS turns_place_sender;
DROP INDEX IF EXISTS turns_place_domain;
DROP INDEX IF EXISTS turns_place_principal;
-- +end
