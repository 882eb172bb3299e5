package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// mailStore reads and ends mail that is kept for the operator, and what reports say.
type mailStore struct{ *shared }

// mailTx keeps mail in a transaction.
type mailTx struct{ *transaction }

const (
	hasMail    = `SELECT id FROM mails WHERE natural_key = $1`
	insertMail = `INSERT INTO mails (id, natural_key, kind, mailbox, sender, sender_host, bytes, digest, head, content)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (natural_key) DO NOTHING`
	insertMailOriginal = `INSERT INTO mail_originals (mail_id, encoding, body) VALUES ($1, $2, $3)`

	takeMailRoom = `INSERT INTO mail_sums (account, messages, bytes) VALUES ('', 1, $1)
		ON CONFLICT (account) DO UPDATE SET messages = mail_sums.messages + 1, bytes = mail_sums.bytes + excluded.bytes
		WHERE mail_sums.messages < $2 AND mail_sums.bytes + excluded.bytes <= $3 RETURNING messages`
	giveMailRoom = `UPDATE mail_sums SET messages = messages - $1, bytes = bytes - $2 WHERE account = ''`

	selectMailHeads = `SELECT id, head FROM mails`
	selectMail      = `SELECT head, content FROM mails WHERE id = $1`
	selectMailBytes = `SELECT m.digest, COALESCE(o.encoding, ''), COALESCE(o.body, '') FROM mails m
		LEFT JOIN mail_originals o ON o.mail_id = m.id WHERE m.id = $1`

	selectOldMail      = `SELECT id, bytes, digest FROM mails WHERE kind = $1 AND id < $2 ORDER BY id LIMIT $3 + 0`
	selectExcessMail   = `SELECT id FROM mails WHERE kind = $1 ORDER BY id DESC LIMIT 1 OFFSET $2 + 0`
	deleteMail         = `DELETE FROM mails WHERE id = $1 RETURNING number`
	deleteMailOriginal = `DELETE FROM mail_originals WHERE mail_id = $1`
)

// Errors that undo a transaction.
var (
	errMailRepeated = errors.New("the mail is there")
	errMailRoom     = &fault.Fault{Kind: fault.RateLimited, Public: "the operator's mailbox takes no more mail from you right now; try again later", RetryAfter: time.Hour}
)

// mailContent is what lists do not show.
type mailContent struct {
	Headers []exchange.MailHeader `json:"headers,omitempty"`
	Text    string                `json:"text,omitempty"`
	Cut     bool                  `json:"cut,omitempty"`
}

// KeepMail keeps a mail and counts it, with the lines of the report in it and the jobs that send it on, in one transaction. Of a repeat
// it keeps nothing. Digest is that of the bytes in the blob store; empty = they are kept with the mail. The error is fault.RateLimited where
// the quota of its sender, or of all, is used up.
func (s mailStore) KeepMail(
	ctx context.Context, mail exchange.IncomingMail, charge exchange.MailCharge, digest string, jobs ...queue.NewJob,
) (kept exchange.KeptMail, err error) {
	if err := requireStorable("natural key", mail.Key, "kind", mail.Kind, "mailbox", mail.Mailbox, "digest", digest); err != nil {
		return kept, err
	}
	row, err := mailRow(mail, charge, digest)
	if err != nil {
		return kept, err
	}

	err = s.InTx(ctx, func(tx *Tx) (err error) {
		kept = exchange.KeptMail{New: true}
		if err = (mailTx{tx.transaction}).keep(ctx, mail, charge, row, digest); err != nil {
			return err
		}
		kept.Forwarded, err = mailTx{tx.transaction}.sendOn(ctx, charge.ForwardsPerDay, jobs)
		return err
	})
	switch {
	case errors.Is(err, errMailRepeated):
		return exchange.KeptMail{}, nil
	case err != nil:
		return exchange.KeptMail{}, err
	}
	return kept, nil
}

func mailRow(mail exchange.IncomingMail, charge exchange.MailCharge, digest string) ([]any, error) {
	content, err := json.Marshal(mailContent{mail.Headers, mail.Text, mail.Cut})
	if err != nil {
		return nil, fmt.Errorf("encode content of mail: %w", err)
	}

	shown := mail.Mail
	shown.Headers, shown.Text, shown.Cut = nil, "", false
	head, err := json.Marshal(shown)
	if err != nil {
		return nil, fmt.Errorf("encode mail: %w", err)
	}

	sender := strings.ToLower(cleaned(mail.From))
	return []any{
		mail.ID, hashKey(mail.Key), mail.Kind, mail.Mailbox, sender, backwards(exchange.MailDomain(sender)), charge.Bytes, digest,
		cleaned(string(head)), cleaned(string(content)),
	}, nil
}

// backwards writes a domain from its end, so that a domain and what is below it stand together.
func backwards(domain string) string {
	labels := strings.Split(domain, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "."
}

func (t mailTx) keep(ctx context.Context, mail exchange.IncomingMail, charge exchange.MailCharge, row []any, digest string) error {
	var id string
	found, err := first(ctx, t.sql, hasMail, []any{hashKey(mail.Key)}, &id)
	if err != nil {
		return err
	}
	if found {
		return errMailRepeated
	}

	if charge.Bytes > 0 {
		if err := t.charge(ctx, charge); err != nil {
			return err
		}
	}

	changed, err := t.sql.Change(ctx, insertMail, row...)
	if err != nil {
		return err
	}
	if changed == 0 { // another connection brought it just now
		return errMailRepeated
	}
	t.indexes = true

	if digest == "" {
		encoding, body := encodeBody(mail.Raw)
		if err := t.sql.Do(ctx, insertMailOriginal, mail.ID, encoding, body); err != nil {
			return err
		}
	}
	if mail.Kind == exchange.MailOrdinary {
		t.count(exchange.NoticeMail, mail.Mailbox, exchange.NoticeExample{ID: mail.ID, Note: mail.Subject})
	}
	if mail.Report == nil {
		return nil
	}
	return t.keepReport(ctx, mail)
}

// sendOn enqueues the jobs that send a mail on, unless so many were sent on today already.
func (t mailTx) sendOn(ctx context.Context, most int64, jobs []queue.NewJob) (bool, error) {
	if len(jobs) == 0 {
		return false, nil
	}

	day := t.now().UTC().Truncate(24 * time.Hour)
	sums, err := addCounts(ctx, t.sql, []exchange.Count{{Key: "mail forwards " + day.Format(time.DateOnly), Amount: 1, Ends: day.Add(25 * time.Hour)}})
	if err != nil || len(sums) != 1 || sums[0].Amount > most {
		return false, err
	}
	for _, job := range jobs {
		if err := t.jobs().Enqueue(ctx, job); err != nil {
			return false, err
		}
	}
	return true, nil
}

// mailBounds are the counters of a mail with what each may have, and what all kept mail may.
type mailBounds struct {
	counts             []exchange.Count // in the order of their keys
	most               map[string]int64
	allMessages, bytes int64
}

func boundsOfMail(charge exchange.MailCharge, now time.Time) mailBounds {
	quota, day := charge.Quota, now.UTC().Truncate(24*time.Hour)
	if !charge.Proven {
		for _, most := range []*int64{&quota.DayMessages, &quota.DayBytes, &quota.AllMessages, &quota.AllBytes} {
			*most -= *most * quota.Kept / 100
		}
	}

	bounds := mailBounds{most: map[string]int64{}, allMessages: quota.AllMessages, bytes: quota.AllBytes}
	count := func(account string, messages, bytes int64) {
		key, ends := "mail "+day.Format(time.DateOnly)+" "+account, day.Add(25*time.Hour)
		bounds.counts = append(bounds.counts, exchange.Count{Key: key + " b", Amount: charge.Bytes, Ends: ends}, exchange.Count{Key: key + " n", Amount: 1, Ends: ends})
		bounds.most[key+" b"], bounds.most[key+" n"] = bytes, messages
	}

	count("", quota.DayMessages, quota.DayBytes)
	wider := int64(1)
	for _, account := range charge.Accounts {
		count(account, quota.SenderMessages*wider, quota.SenderBytes*wider)
		wider *= 4
	}
	slices.SortFunc(bounds.counts, func(a, b exchange.Count) int { return cmp.Compare(a.Key, b.Key) })
	return bounds
}

// charge counts a mail for its sender and for all. Rows of counters are taken before the sum, by everyone in the same order.
func (t mailTx) charge(ctx context.Context, charge exchange.MailCharge) error {
	bounds := boundsOfMail(charge, t.now())
	sums, err := addCounts(ctx, t.sql, bounds.counts)
	if err != nil {
		return err
	}
	for _, sum := range sums {
		if sum.Amount > bounds.most[sum.Key] {
			return errMailRoom
		}
	}

	var messages int64
	fits, err := first(ctx, t.sql, takeMailRoom, []any{charge.Bytes, bounds.allMessages, bounds.bytes}, &messages)
	if err == nil && (!fits || charge.Bytes > bounds.bytes) {
		err = errMailRoom
	}
	return err
}

// MailRoom looks whether there is room for a mail, without taking it, before its bytes are written outside of the database: known reports
// whether the mail is there already. The error is fault.RateLimited without room.
func (s mailStore) MailRoom(ctx context.Context, key string, charge exchange.MailCharge) (known bool, err error) {
	var id string
	if known, err = first(ctx, s.engine.Reader(), hasMail, []any{hashKey(key)}, &id); err != nil || known || charge.Bytes == 0 {
		return known, err
	}

	bounds := boundsOfMail(charge, s.now())
	used, keys := map[string]int64{}, make([]string, 0, len(bounds.counts))
	for _, count := range bounds.counts {
		keys = append(keys, count.Key)
	}
	sums, err := s.quotas().Counts(ctx, keys)
	if err != nil {
		return false, err
	}
	for _, sum := range sums {
		used[sum.Key] = sum.Amount
	}
	for _, count := range bounds.counts {
		if used[count.Key]+count.Amount > bounds.most[count.Key] {
			return false, errMailRoom
		}
	}

	messages, bytes, err := s.MailUse(ctx)
	if err == nil && (messages >= bounds.allMessages || bytes+charge.Bytes > bounds.bytes) {
		err = errMailRoom
	}
	return false, err
}

// MailUse returns what kept mail takes of its quota, all together.
func (s mailStore) MailUse(ctx context.Context) (messages, bytes int64, err error) {
	_, err = first(ctx, s.engine.Reader(), `SELECT messages, bytes FROM mail_sums WHERE account = ''`, nil, &messages, &bytes)
	return messages, bytes, err
}

// Mails lists kept mail, newest first, without headers and text. A filter with a text finds by the index of words, in which a mail is some
// hundred milliseconds after it was kept. fault.Malformed for a text that cannot be.
func (s mailStore) Mails(ctx context.Context, filter exchange.MailFilter) (mails []exchange.Mail, err error) {
	query, err := parseText(filter.Text)
	if err != nil {
		return nil, err
	}
	if len(query) > 0 {
		return s.found(ctx, filter, query)
	}

	chosen := selectMails(filter)
	chosen.addWhen(filter.Before != "", "id < ?", cleaned(filter.Before))
	return s.heads(ctx, selectMailHeads+chosen.sql()+chosen.page("id DESC", filter.Limit), chosen.arguments)
}

func (s mailStore) heads(ctx context.Context, query string, arguments []any) (mails []exchange.Mail, err error) {
	err = s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		var id, head string
		if err := r.Scan(&id, &head); err != nil {
			return err
		}

		var mail exchange.Mail
		if err := json.Unmarshal([]byte(head), &mail); err != nil {
			return fmt.Errorf("decode mail %s: %w", id, err)
		}
		mails = append(mails, mail)
		return nil
	})
	return mails, err
}

func selectMails(filter exchange.MailFilter) *selection {
	chosen := new(selection)
	chosen.addWhen(filter.Kind != "", "kind = ?", cleaned(filter.Kind))
	chosen.addWhen(filter.Mailbox != "", "mailbox = ?", strings.ToLower(cleaned(filter.Mailbox)))
	switch sender := strings.ToLower(cleaned(strings.TrimPrefix(filter.Sender, "@"))); {
	case sender == "":
	case strings.Contains(sender, "@"):
		chosen.add("sender = ?", sender)
	default:
		host := backwards(sender)
		chosen.add("sender_host >= ? AND sender_host < ?", host, strings.TrimSuffix(host, ".")+"/")
	}

	chosen.addWhen(!filter.Since.IsZero(), "id >= ?", firstID(filter.Since))
	chosen.addWhen(!filter.Until.IsZero(), "id < ?", firstID(filter.Until))
	return chosen
}

// Mail returns one kept mail; fault.NotFound when there is none.
func (s mailStore) Mail(ctx context.Context, id string) (mail exchange.Mail, err error) {
	var head, content string
	found, err := first(ctx, s.engine.Reader(), selectMail, []any{cleaned(id)}, &head, &content)
	if err == nil && !found {
		err = notFound("mail")
	}
	if err != nil {
		return mail, err
	}

	var rest mailContent
	if err := errors.Join(json.Unmarshal([]byte(head), &mail), json.Unmarshal([]byte(content), &rest)); err != nil {
		return mail, fmt.Errorf("decode mail %s: %w", id, err)
	}
	mail.Headers, mail.Text, mail.Cut = rest.Headers, rest.Text, rest.Cut
	return mail, nil
}

// MailBytes returns the bytes of a kept mail, or their digest in the blob store; fault.NotFound when there is no such mail.
func (s mailStore) MailBytes(ctx context.Context, id string) (raw []byte, digest string, err error) {
	var encoding, body string
	found, err := first(ctx, s.engine.Reader(), selectMailBytes, []any{cleaned(id)}, &digest, &encoding, &body)
	if err == nil && !found {
		err = notFound("mail")
	}
	if err != nil || digest != "" {
		return nil, digest, err
	}

	raw, err = decodeBody(encoding, body)
	return raw, "", err
}

// mailPortion is how many mails one transaction deletes.
const mailPortion = 200

// DeleteMailBefore deletes the mails of a kind that came before the instant, in small portions, and returns how many they were. What
// reports said stays: see DeleteReportsBefore.
func (s mailStore) DeleteMailBefore(ctx context.Context, kind string, before time.Time) (deleted int, err error) {
	if before.IsZero() {
		return 0, nil
	}
	return s.deleteMailUnder(ctx, kind, firstID(before))
}

// TrimMail deletes the oldest mails of a kind, of which the newest stay.
func (s mailStore) TrimMail(ctx context.Context, kind string, newest int) (deleted int, err error) {
	var last string
	found, err := first(ctx, s.engine.Reader(), selectExcessMail, []any{kind, int64(newest)}, &last)
	if err != nil || !found {
		return 0, err
	}
	return s.deleteMailUnder(ctx, kind, last+"~")
}

func (s mailStore) deleteMailUnder(ctx context.Context, kind, id string) (deleted int, err error) {
	for {
		portion := 0
		err := s.InTx(ctx, func(tx *Tx) (err error) {
			portion, err = mailTx{tx.transaction}.deleteUnder(ctx, kind, id)
			return err
		})
		deleted += portion
		if err != nil || portion < mailPortion {
			return deleted, err
		}
	}
}

const selectOneMail = `SELECT id, bytes, digest FROM mails WHERE id = $1`

// mailsOf are the mails of a person, by the addresses of their author, and captured answers to them. A mail that only states an
// address is one of them where unproven mails are wanted, too.
func (s mailStore) mailsOf(ctx context.Context, person PersonNames) (ids []string, err error) {
	addresses := mailAddresses(person)
	for i, address := range person.Addresses {
		err = s.engine.Reader().Each(ctx, `SELECT id, head FROM mails WHERE sender = $1`, []any{addresses[i]}, func(r row) error {
			var id, head string
			err := r.Scan(&id, &head)
			if author, proven := authorOf(head); author == address && (proven || person.Unproven) {
				ids = append(ids, id)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	err = s.engine.Reader().Each(ctx, `SELECT id, head FROM mails WHERE kind = '`+exchange.MailCaptured+`'`, nil, func(r row) error {
		var id, head string
		err := r.Scan(&id, &head)
		if mentions(head, addresses) {
			ids = append(ids, id)
		}
		return err
	})
	return ids, err
}

// oldMail is a mail that is to be deleted.
type oldMail struct {
	id, digest string
	bytes      int64
}

func (t mailTx) deleteUnder(ctx context.Context, kind, id string) (deleted int, err error) {
	return t.deleteFound(ctx, selectOldMail, kind, id, int64(mailPortion))
}

// deleteFound deletes the mails whose id, bytes and digest a query selects, and returns how many they were.
func (t mailTx) deleteFound(ctx context.Context, query string, arguments ...any) (deleted int, err error) {
	var old []oldMail
	err = t.sql.Each(ctx, query, arguments, func(r row) error {
		var one oldMail
		err := r.Scan(&one.id, &one.bytes, &one.digest)
		old = append(old, one)
		return err
	})
	if err != nil || len(old) == 0 {
		return 0, err
	}

	var gone []string
	var messages, bytes int64
	for _, one := range old {
		var number int64
		found, err := first(ctx, t.sql, deleteMail, []any{one.id}, &number)
		if err != nil {
			return 0, err
		}
		if !found { // another node deleted it just now, and gave its room back
			continue
		}

		if err := t.search().mailGone(ctx, number); err != nil {
			return 0, err
		}
		if err := t.sql.Do(ctx, deleteMailOriginal, one.id); err != nil {
			return 0, err
		}
		if one.digest != "" {
			gone = append(gone, one.digest)
		}
		if one.bytes > 0 {
			messages, bytes = messages+1, bytes+one.bytes
		}
	}

	if err := t.discard(ctx, gone...); err != nil || messages == 0 {
		return len(old), err
	}
	return len(old), t.sql.Do(ctx, giveMailRoom, messages, bytes)
}

const (
	hasReport = `SELECT id FROM mail_reports WHERE report_key = $1 LIMIT 1`

	reportColumns = `id, kind, mail_id, reporter, proven, proof, organization, report_id, domain, begins_at, ends_at, received_at,
		policy, source, peer, amount, disposition, dkim, spf, result, detail`
	insertReportRow = `INSERT INTO mail_reports (report_key, line, ` + reportColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
		ON CONFLICT (report_key, line) DO NOTHING`

	sumReports = `SELECT kind, source, disposition, dkim, spf, result, CAST(SUM(amount) AS BIGINT), COUNT(DISTINCT report_key), MIN(begins_at), MAX(ends_at)
		FROM mail_reports`
	groupReports = ` GROUP BY kind, source, disposition, dkim, spf, result`

	sweepReports = `DELETE FROM mail_reports WHERE id IN (SELECT id FROM mail_reports WHERE id < $1 ORDER BY id LIMIT $2 + 0)`
)

// keepReport keeps the lines of a report, once for each reporter and id: another mail with the same report adds nothing.
func (t mailTx) keepReport(ctx context.Context, mail exchange.IncomingMail) error {
	report, reporter := mail.Report, exchange.MailDomain(cleaned(mail.From))
	key := hashKey(report.Kind, reporter, mail.Proof, report.ReportID)
	var id string
	if found, err := first(ctx, t.sql, hasReport, []any{key}, &id); err != nil || found {
		return err
	}

	for i, line := range report.Rows {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make id: %w", err)
		}
		err = t.sql.Do(ctx, insertReportRow, key, int64(i), id.String(), report.Kind, mail.ID, reporter, flag(mail.Proven()), mail.Proof,
			cleaned(report.Organization), cleaned(report.ReportID), cleaned(report.Domain), micros(report.Begins), micros(report.Ends), micros(mail.ReceivedAt),
			cleaned(cmp.Or(line.Policy, report.Policy)), cleaned(line.Source), cleaned(line.Peer), line.Count, cleaned(line.Disposition), cleaned(line.DKIM),
			cleaned(line.SPF), cleaned(line.Result), cleaned(line.Detail))
		if err != nil {
			return err
		}
	}
	return nil
}

func selectReports(filter exchange.ReportFilter) *selection {
	chosen := new(selection)
	chosen.addWhen(!filter.Unproven, "proven = 1")
	chosen.addWhen(filter.Kind != "", "kind = ?", cleaned(filter.Kind))
	chosen.addWhen(filter.Result != "", "result = ?", cleaned(filter.Result))
	chosen.addWhen(filter.Source != "", "source = ?", cleaned(filter.Source))
	chosen.addWhen(!filter.Since.IsZero(), "ends_at > ?", micros(filter.Since))
	chosen.addWhen(filter.Before != "", "id < ?", cleaned(filter.Before))
	return chosen
}

// Reports lists lines of reports, newest first.
func (s mailStore) Reports(ctx context.Context, filter exchange.ReportFilter) (rows []exchange.StoredReportRow, err error) {
	chosen := selectReports(filter)
	query := `SELECT ` + reportColumns + ` FROM mail_reports` + chosen.sql() + chosen.page("id DESC", filter.Limit)
	err = s.engine.Reader().Each(ctx, query, chosen.arguments, func(r row) error {
		var one exchange.StoredReportRow
		var proven, begins, ends, received int64
		err := r.Scan(&one.ID, &one.Kind, &one.MailID, &one.Reporter, &proven, &one.Proof, &one.Organization, &one.ReportID, &one.Domain, &begins, &ends, &received,
			&one.Policy, &one.Source, &one.Peer, &one.Count, &one.Disposition, &one.DKIM, &one.SPF, &one.Result, &one.Detail)
		one.Proven, one.Begins, one.Ends, one.ReceivedAt = proven == 1, instant(begins), instant(ends), instant(received)
		rows = append(rows, one)
		return err
	})
	return rows, err
}

// SumReports adds reports up by source and result, the largest sums first, at most as many as the filter says.
func (s mailStore) SumReports(ctx context.Context, filter exchange.ReportFilter) (sums []exchange.ReportSum, err error) {
	chosen := selectReports(filter)
	query := sumReports + chosen.sql() + groupReports + chosen.page("7 DESC, 1, 2, 6, 3, 4, 5", filter.Limit)
	err = s.engine.Reader().Each(ctx, query, chosen.arguments, func(r row) error {
		var one exchange.ReportSum
		var begins, ends int64
		err := r.Scan(&one.Kind, &one.Source, &one.Disposition, &one.DKIM, &one.SPF, &one.Result, &one.Count, &one.Reports, &begins, &ends)
		one.Begins, one.Ends = instant(begins), instant(ends)
		sums = append(sums, one)
		return err
	})
	return sums, err
}

// DeleteReportsBefore deletes lines of reports that came before the instant, in small portions, and returns how many they were.
func (s mailStore) DeleteReportsBefore(ctx context.Context, before time.Time) (deleted int, err error) {
	if before.IsZero() {
		return 0, nil
	}
	for {
		var portion int64
		err := s.inBackground(ctx, func(tx *Tx) (err error) {
			portion, err = tx.sql.Change(ctx, sweepReports, firstID(before), int64(maxSwept))
			return err
		})
		deleted += int(portion)
		if err != nil || portion < maxSwept {
			return deleted, err
		}
	}
}

// sweepMail deletes mail and reports whose time is over.
func (s mailStore) sweepMail(ctx context.Context, ceilings Periods, now time.Time) error {
	for _, kind := range exchange.MailKinds() {
		age := ceilings[RetainOperatorMail]
		if kind == exchange.MailCaptured {
			age = ceilings[RetainCapturedMail]
		}
		if age == 0 {
			continue
		}
		if _, err := s.DeleteMailBefore(ctx, kind, now.Add(-age)); err != nil {
			return err
		}
	}

	age := ceilings[RetainMailReports]
	if age == 0 {
		return nil
	}
	_, err := s.DeleteReportsBefore(ctx, now.Add(-age))
	return err
}
