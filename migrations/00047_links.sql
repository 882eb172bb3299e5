-- +goose Up

-- Consent of two principals that one agent treats them as one person. A link is about two principals and one agent, and spreads no further.
CREATE TABLE links (
    id               TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7
    agent            TEXT COLLATE "C" NOT NULL,
    first_key        TEXT COLLATE "C" NOT NULL, -- first_principal
    first_principal  TEXT COLLATE "C" NOT NULL,
    first_issuer     TEXT NOT NULL,
    first_subject    TEXT NOT NULL,
    first_method     TEXT NOT NULL,
    first_address    TEXT NOT NULL, -- for which the evidence vouched; empty = for none
    second_key       TEXT COLLATE "C" NOT NULL,
    second_principal TEXT COLLATE "C" NOT NULL,
    second_issuer    TEXT NOT NULL,
    second_subject   TEXT NOT NULL,
    second_method    TEXT NOT NULL,
    second_address   TEXT NOT NULL,
    digest           TEXT COLLATE "C" NOT NULL, -- of what both were shown
    linked_at        BIGINT NOT NULL,
    until            BIGINT NOT NULL -- 0 = until somebody ends it
);

CREATE INDEX links_first ON links (first_key, agent);
CREATE INDEX links_second ON links (second_key, agent);

-- Identities that were linked before name no agent. The demands that both sides agreed to do: a link whose demands are still there counts
-- for their agent, and every other one ends here. Addresses were those that senders stated; they stay where the subject is the same address.
INSERT INTO links (id, agent, first_key, first_principal, first_issuer, first_subject, first_method, first_address,
    second_key, second_principal, second_issuer, second_subject, second_method, second_address, digest, linked_at, until)
SELECT d.id, d.agent,
    a.principal_key, a.principal, a.issuer, a.subject, a.method,
    CASE WHEN a.subject = 'mailto:' || substr(a.address, 2) OR a.subject = 'acct:' || substr(a.address, 2) THEN a.address ELSE '' END,
    b.principal_key, b.principal, b.issuer, b.subject, b.method,
    CASE WHEN b.subject = 'mailto:' || substr(b.address, 2) OR b.subject = 'acct:' || substr(b.address, 2) THEN b.address ELSE '' END,
    d.terms::json ->> 'action', d.updated_at, 0
FROM demands d
JOIN demands f ON f.id = (CASE WHEN d.purpose = 'link_confirm' AND d.notes <> '' THEN d.notes ELSE '{}' END)::json ->> 'partner' AND f.agent = d.agent
JOIN person_identities a ON a.principal = f.terms::json ->> 'principal'
JOIN person_identities b ON b.principal = d.terms::json ->> 'principal' AND b.person_id = a.person_id
WHERE d.purpose = 'link_confirm' AND d.status = 'resolved' AND f.purpose = 'link' AND f.status = 'resolved'
    AND a.principal <> b.principal AND COALESCE(d.terms::json ->> 'action', '') <> ''
    AND NOT EXISTS (
        SELECT 1 FROM demands e
        WHERE e.id > d.id AND e.agent = d.agent AND e.purpose = 'link_confirm' AND e.status = 'resolved'
            AND e.terms::json ->> 'principal' = d.terms::json ->> 'principal'
            AND (CASE WHEN e.purpose = 'link_confirm' AND e.notes <> '' THEN e.notes ELSE '{}' END)::json ->> 'partner' = f.id
    );

DROP TABLE person_identities;
