package store

import (
	"context"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
)

// personStore finds links of people.
type personStore struct{ *shared }

// personTx writes them in a transaction.
type personTx struct{ *transaction }

const linkColumns = `id, agent, first_principal, first_issuer, first_subject, first_method, first_address,
	second_principal, second_issuer, second_subject, second_method, second_address, digest, linked_at, until`

const insertLink = `INSERT INTO links (first_key, second_key, id, agent, first_principal, first_issuer, first_subject, first_method, first_address,
	second_principal, second_issuer, second_subject, second_method, second_address, digest, linked_at, until)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`

// An agent that asks again gets a new link in place of the old one, whichever side asked.
const replaceLink = `DELETE FROM links WHERE agent = $1 AND (first_key = $2 AND second_key = $3 OR first_key = $3 AND second_key = $2)`

// PutLink stores a link in place of an earlier one of the same principals for the same agent. A link without agent or digest,
// or of fewer than two principals, is fault.Malformed.
func (t personTx) PutLink(ctx context.Context, link exchange.PersonLink) error {
	a, b := link.Sides[0], link.Sides[1]
	if err := requireStorable("id", link.ID, "agent", link.Agent, "digest", link.Digest, "principal", a.Principal, "principal", b.Principal); err != nil {
		return err
	}
	switch {
	case link.Agent == "" || link.Digest == "":
		return fault.InField("link", "must name its agent and what was shown")
	case a.Principal == "" || b.Principal == "":
		return fault.InField("principal", "is required")
	case a.Principal == b.Principal:
		return fault.InField("principal", "must be two different ones")
	}

	if link.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		link.ID = id.String()
	}

	first, second := hashKey(a.Principal), hashKey(b.Principal)
	if err := t.sql.Do(ctx, replaceLink, link.Agent, first, second); err != nil {
		return err
	}
	return t.sql.Do(ctx, insertLink, first, second, link.ID, link.Agent,
		a.Principal, cleaned(a.Issuer), cleaned(a.Subject), cleaned(a.Method), cleaned(string(a.Address)),
		b.Principal, cleaned(b.Issuer), cleaned(b.Subject), cleaned(b.Method), cleaned(string(b.Address)),
		link.Digest, t.microsOrNow(link.LinkedAt), micros(link.Until))
}

// A side that is a token counts while the token does.
const selectLinksOf = ` FROM links l WHERE (l.first_key = $1 OR l.second_key = $1) AND (l.agent = $2 OR $2 = '')
	AND NOT EXISTS (SELECT 1 FROM tokens t WHERE t.id IN (substr(l.first_subject, 7), substr(l.second_subject, 7))
		AND 'token:' || t.id IN (l.first_subject, l.second_subject)
		AND (t.revoked_at <> 0 OR t.expires_at <> 0 AND t.expires_at <= $3))
	ORDER BY l.id LIMIT $4 + 0`

// LinksOf returns the links of a principal that are in force for an agent, oldest first, at most 500; an empty agent is any.
// Whether the issuers of both sides are still trusted is the caller's to say.
func (s personStore) LinksOf(ctx context.Context, agent, principal string) ([]exchange.PersonLink, error) {
	now := s.now()
	links, err := selectLinks(ctx, s.engine.Reader(), `SELECT `+linkColumns+selectLinksOf, hashKey(principal), cleaned(agent), micros(now), int64(maxPage))
	counting := links[:0]
	for i := range links {
		if _, _, counts := links[i].With(links[i].Agent, principal, now); counts {
			counting = append(counting, links[i])
		}
	}
	return counting, err
}

// Links lists links, the newest first, at most 500. Before is the id of the last one of the page before.
func (s personStore) Links(ctx context.Context, before string, limit int) ([]exchange.PersonLink, error) {
	if before == "" {
		before = "~"
	}
	return selectLinks(ctx, s.engine.Reader(), `SELECT `+linkColumns+` FROM links WHERE id < $1 ORDER BY id DESC LIMIT $2 + 0`, cleaned(before), pageSize(limit))
}

func selectLinks(ctx context.Context, from querier, query string, arguments ...any) ([]exchange.PersonLink, error) {
	var links []exchange.PersonLink
	err := from.Each(ctx, query, arguments, func(r row) error {
		link, err := scanLink(r)
		links = append(links, link)
		return err
	})
	return links, err
}

func scanLink(r row) (link exchange.PersonLink, err error) {
	var linked, until int64
	a, b := &link.Sides[0], &link.Sides[1]
	err = r.Scan(&link.ID, &link.Agent, &a.Principal, &a.Issuer, &a.Subject, &a.Method, &a.Address,
		&b.Principal, &b.Issuer, &b.Subject, &b.Method, &b.Address, &link.Digest, &linked, &until)
	link.LinkedAt, link.Until = instant(linked), instant(until)
	return link, err
}

// EndLinks ends the links that the filter selects and returns them. Each leaves an audit row.
func (s personStore) EndLinks(ctx context.Context, filter exchange.LinkFilter, end exchange.LinkEnd) (ended []exchange.PersonLink, err error) {
	err = s.InTx(ctx, func(tx *Tx) error {
		ended, err = tx.endLinks(ctx, filter, end)
		return err
	})
	return ended, err
}

// endLinks is EndLinks in a transaction.
func (t *transaction) endLinks(ctx context.Context, filter exchange.LinkFilter, end exchange.LinkEnd) ([]exchange.PersonLink, error) {
	var chosen selection
	chosen.addWhen(filter.ID != "", "id = ?", cleaned(filter.ID))
	chosen.addWhen(filter.Agent != "", "agent = ?", cleaned(filter.Agent))
	chosen.addWhen(filter.Principal != "", "? IN (first_key, second_key)", hashKey(filter.Principal))
	chosen.addWhen(filter.Subject != "", "? IN (first_subject, second_subject)", cleaned(filter.Subject))
	chosen.addWhen(filter.Address != "", "LOWER(?) IN (LOWER(first_address), LOWER(second_address))", cleaned(string(filter.Address)))
	if filter == (exchange.LinkFilter{Agent: filter.Agent}) {
		return nil, fault.InField("link", "must be named by its id, a principal, a subject or an address")
	}

	ended, err := selectLinks(ctx, t.sql, `DELETE FROM links`+chosen.sql()+` RETURNING `+linkColumns, chosen.arguments...)
	if err != nil {
		return nil, err
	}
	for i := range ended {
		err := auditTx{t}.Audit(ctx, exchange.AuditRecord{
			At: t.now(), Code: exchange.AuditUnlinked, Agent: ended[i].Agent, Principal: end.By,
			Detail: ended[i].Sides[0].Principal + " and " + ended[i].Sides[1].Principal + ": " + end.Reason,
		})
		if err != nil {
			return ended, err
		}
	}
	return ended, nil
}
