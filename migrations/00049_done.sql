-- +goose Up

-- Recipients of a delivery who need no further attempt, as a JSON array; empty = none. They were kept in a working document that ended
-- before the delivery did.
ALTER TABLE deliveries ADD COLUMN done TEXT NOT NULL DEFAULT '';

UPDATE deliveries SET done = (SELECT substr(value, 9, length(value) - 9) FROM documents -- of {"done":[…]}
    WHERE namespace = 'email/progress' AND key = deliveries.id AND encoding = 'utf8')
WHERE id IN (SELECT key FROM documents WHERE namespace = 'email/progress' AND encoding = 'utf8');
