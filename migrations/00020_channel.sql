-- +goose Up

-- By which channel a message came and its answer leaves. received_via, the contract's word, is a2a for several of them. The rule
-- for rows from before is also that of package store for rows of nodes that do not know the column.
ALTER TABLE turns ADD COLUMN channel TEXT COLLATE "C" NOT NULL DEFAULT '';

UPDATE turns SET channel = CASE
    WHEN received_via <> 'a2a' THEN received_via
    WHEN route LIKE '{"chat":true%' THEN 'chat'
    WHEN route LIKE '{"surface":%' THEN 'bridge'
    WHEN route = '{"dispatch":"fetched"}' THEN 'local'
    ELSE 'a2a' END;

-- Of what came as a2a, only answers to bridges are delivered; the others are fetched.
ALTER TABLE deliveries RENAME COLUMN via TO channel;
UPDATE deliveries SET channel = 'bridge' WHERE channel = 'a2a';

ALTER TABLE destinations RENAME COLUMN via TO channel;
UPDATE destinations SET channel = 'bridge' WHERE channel = 'a2a';
