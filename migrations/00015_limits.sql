-- +goose Up

-- The network of a sender without proof, by a keyed hash; empty for senders with proof and where it is not known.
ALTER TABLE turns ADD COLUMN network TEXT COLLATE "C" NOT NULL DEFAULT '';

-- Messages that get no answer by themselves, held ones and silent ones, as long as their content is kept.
CREATE TABLE unanswered (
    turn_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    account TEXT COLLATE "C" NOT NULL, -- whose they are: a network or a domain; empty = not known
    bytes   BIGINT NOT NULL,
    ends_at BIGINT NOT NULL            -- when the content goes
);

CREATE INDEX unanswered_ends ON unanswered (ends_at);

-- Sums of the table above. The account that is empty is the sum of all.
CREATE TABLE unanswered_sums (
    account  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    messages BIGINT NOT NULL,
    bytes    BIGINT NOT NULL
);

-- What was stored before ends a whole time after the last thing that happened, not at once: 14 days, 30 days.
INSERT INTO unanswered (turn_id, account, bytes, ends_at)
    SELECT id, '', LENGTH(message),
        (SELECT MAX(updated_at) FROM turns) + CASE WHEN state = 'held' THEN 1209600000000 ELSE 2592000000000 END
    FROM turns WHERE state IN ('held', 'silent') AND message NOT LIKE '%"parts":[]%';

INSERT INTO unanswered_sums (account, messages, bytes)
    SELECT '', COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM unanswered;
