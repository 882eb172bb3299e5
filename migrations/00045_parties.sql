-- +goose Up

-- Whom a message was meant for beside its sender: '' = no one, '*' = everyone in its conversation, '+' = those in turn_parties. The
-- history of a sender is made of the turns whose audience has the sender.
ALTER TABLE turns ADD COLUMN audience TEXT COLLATE "C" NOT NULL DEFAULT '';

CREATE TABLE turn_parties (
    turn_id   TEXT COLLATE "C" NOT NULL,
    party_key TEXT COLLATE "C" NOT NULL, -- agent, principal; as person_key of turns
    principal TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (turn_id, party_key)
);

-- By which an erased person is found.
CREATE INDEX turn_parties_principal ON turn_parties (principal, turn_id);

-- Public posts, and what was said in the rooms of bridges, were open to all in their conversation. Of older mails only their senders
-- are parties: who else was addressed was not kept in a form that a proof can be compared with.
UPDATE turns SET audience = '*' WHERE channel = 'bridge';
UPDATE turns SET audience = '*' WHERE channel = 'activitypub' AND route LIKE '{"%'
    AND COALESCE(route::json ->> 'visibility', '') IN ('public', 'unlisted');
