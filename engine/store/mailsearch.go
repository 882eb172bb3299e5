package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"inbox/engine/store/database"
	"inbox/exchange"
)

// wordsOfMail are the words by which a kept mail is found.
func wordsOfMail(mail exchange.Mail) searchWords {
	said := []string{mail.Text}
	for _, file := range mail.Files {
		said = append(said, file.Name)
	}
	return searchWords{
		said: wordsOf(strings.Join(said, "\n"), maxSearchedWords), subject: wordsOf(mail.Subject+"\n"+mail.MessageID, 256),
		sender: wordsOf(strings.Join(append([]string{mail.From, mail.FromName, mail.EnvelopeFrom}, mail.To...), "\n"), 256),
	}
}

const (
	selectMailWaits   = `SELECT id FROM mails WHERE number = 0 ORDER BY id LIMIT 1`
	selectMailsWait   = `SELECT id, head, content FROM mails WHERE number = 0 ORDER BY id LIMIT $1 + 0`
	selectMailNumber  = `SELECT COALESCE(MAX(number), 0) FROM mails WHERE number > 0`
	selectGoneNumber  = `SELECT COALESCE(MAX(number), 0) FROM mail_gone`
	updateMailNumber  = `UPDATE mails SET number = $2 WHERE id = $1 AND number = 0`
	forgetMailNumbers = `UPDATE mails SET number = 0 WHERE number > 0`

	selectMailGone = `SELECT number FROM mail_gone ORDER BY number LIMIT $1 + 0`
	insertMailGone = `INSERT INTO mail_gone (number) VALUES ($1) ON CONFLICT DO NOTHING`
	deleteMailGone = `DELETE FROM mail_gone WHERE number = $1`
	deleteLeftMail = `DELETE FROM mail_words WHERE rowid > $1`
)

// waitingMail is a mail whose words are not in the index yet, with the number that it gets.
type waitingMail struct {
	id     string
	number int64
	words  searchWords
}

// waitingMails reads some mails that wait for the index, the oldest first.
func waitingMails(ctx context.Context, from querier) (waiting []waitingMail, err error) {
	words := 0
	err = from.Each(ctx, selectMailsWait, []any{int64(indexedAtOnce)}, func(r row) error {
		var one waitingMail
		var head, content string
		if err := r.Scan(&one.id, &head, &content); err != nil || words > wordsAtOnce {
			return err
		}

		var mail exchange.Mail
		var rest mailContent
		if err := errors.Join(json.Unmarshal([]byte(head), &mail), json.Unmarshal([]byte(content), &rest)); err != nil {
			return fmt.Errorf("decode mail %s: %w", one.id, err)
		}
		mail.Text = rest.Text
		one.words = wordsOfMail(mail)
		waiting, words = append(waiting, one), words+len(one.words.said)
		return nil
	})
	if err != nil || len(waiting) == 0 {
		return nil, err
	}

	number, err := lastMailNumber(ctx, from)
	for i := range waiting {
		waiting[i].number = number + int64(i) + 1
	}
	return waiting, err
}

// lastMailNumber returns the highest number that a mail has, or that a deleted one has in the index.
func lastMailNumber(ctx context.Context, from querier) (int64, error) {
	var number, gone int64
	if _, err := first(ctx, from, selectMailNumber, nil, &number); err != nil {
		return 0, err
	}
	_, err := first(ctx, from, selectGoneNumber, nil, &gone)
	return max(number, gone), err
}

// settleMail gives mails the numbers under which they are in the index now. The words of one that was deleted meanwhile leave it again.
func (t searchTx) settleMail(ctx context.Context, work *indexWork) error {
	for _, number := range work.gone {
		if err := t.sql.Do(ctx, deleteMailGone, number); err != nil {
			return err
		}
	}
	for _, one := range work.mails {
		changed, err := t.sql.Change(ctx, updateMailNumber, one.id, one.number)
		if err == nil && changed == 0 {
			err = t.mailGone(ctx, one.number)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeLeftMail removes words that a crash left before their mails had numbers.
func (s searchStore) removeLeftMail(ctx context.Context) error {
	if s.words == s.engine { // one transaction wrote both
		return nil
	}
	s.indexer.pass.Lock()
	defer s.indexer.pass.Unlock()

	return s.words.Transact(ctx, func(index database.Session) error {
		last, err := lastMailNumber(ctx, s.engine.Reader())
		if err != nil {
			return err
		}
		return index.Do(ctx, deleteLeftMail, 2*last)
	})
}

const (
	selectNumberBelow = `SELECT number FROM mails WHERE id >= $1 AND number > 0 ORDER BY id LIMIT 1`
	selectMailNumbers = `SELECT number, id FROM mails`
)

// found is Mails for a filter with a text.
func (s mailStore) found(ctx context.Context, filter exchange.MailFilter, query searchQuery) ([]exchange.Mail, error) {
	ctx, cancel := context.WithTimeout(ctx, maxSearchTime)
	defer cancel()

	var highest int64
	if _, err := first(ctx, s.engine.Reader(), selectMailNumber, nil, &highest); err != nil {
		return nil, err
	}
	lowest, upper := int64(1), highest+1
	if filter.Before != "" {
		if _, err := first(ctx, s.engine.Reader(), selectNumberBelow, []any{cleaned(filter.Before)}, &upper); err != nil {
			return nil, err
		}
	}

	if !filter.Since.IsZero() {
		if _, err := first(ctx, s.engine.Reader(), selectNumberBelow, []any{firstID(filter.Since)}, &lowest); err != nil {
			return nil, err
		}
		lowest = max(1, lowest-outOfOrder)
	}

	chosen, limit := selectMails(filter), int(pageSize(filter.Limit))
	walk := s.search().walk(mailTable, query, lowest, upper, limit, func(ctx context.Context, numbers []int64) ([]numbered, error) {
		chosen := selection{where: slices.Clone(chosen.where), arguments: slices.Clone(chosen.arguments)}
		return s.search().selected(ctx, selectMailNumbers, "number", chosen, numbers)
	})
	if err := s.walk(ctx, chosen, walk); err != nil {
		return nil, err
	}

	hits, _ := walk.page()
	ids := make([]string, 0, len(hits))
	for _, hit := range hits {
		ids = append(ids, hit.id)
	}
	return s.mailsIn(ctx, ids)
}

// walk goes through the index, unless the rest of the filter turns out to select few.
func (s mailStore) walk(ctx context.Context, chosen *selection, walk *searchWalk) error {
	end := time.Now().Add(maxSearchTime)
	if len(chosen.where) == 0 {
		return walk.until(ctx, end)
	}
	if err := walk.until(ctx, time.Now().Add(s.tuning.probe)); err != nil || walk.done() {
		return err
	}

	restricted := selection{where: slices.Clone(chosen.where), arguments: slices.Clone(chosen.arguments)}
	restricted.add("number > 0")
	restricted.arguments = append(restricted.arguments, int64(s.tuning.few+1))
	var all []numbered
	query := selectMailNumbers + restricted.sql() + ` ORDER BY id DESC LIMIT $` + strconv.Itoa(len(restricted.arguments)) + ` + 0`
	err := s.engine.Reader().Each(ctx, query, restricted.arguments, func(r row) error {
		var one numbered
		err := r.Scan(&one.number, &one.id)
		all = append(all, one)
		return err
	})
	if err != nil {
		return err
	}

	if len(all) > s.tuning.few {
		return walk.until(ctx, end)
	}
	return walk.among(ctx, slices.DeleteFunc(all, func(one numbered) bool { return one.number >= walk.before }))
}

var selectMailsIn = `SELECT id, head FROM mails WHERE id IN (` + placeholders(1, restricted) + `)`

// mailsIn reads mails in the order of ids; those that are gone are left out.
func (s mailStore) mailsIn(ctx context.Context, ids []string) ([]exchange.Mail, error) {
	known := map[string]exchange.Mail{}
	for chunk := range slices.Chunk(ids, restricted) {
		some, err := s.heads(ctx, selectMailsIn, padded(chunk, restricted))
		if err != nil {
			return nil, err
		}
		for _, mail := range some {
			known[mail.ID] = mail
		}
	}

	mails := make([]exchange.Mail, 0, len(ids))
	for _, id := range ids {
		if mail, there := known[id]; there {
			mails = append(mails, mail)
		}
	}
	return mails, nil
}
