package postgres

import (
	"container/list"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
)

// maxStatements bounds what PostgreSQL keeps prepared for one connection.
const maxStatements = 512

// statement is one that PostgreSQL has prepared.
type statement struct {
	query       string
	description *pgconn.StatementDescription
	formats     []int16 // of the columns of its result
}

// statements are those of a connection, the last used first. The zero value is empty.
type statements struct {
	byQuery map[string]*list.Element
	order   list.List
	named   uint64
	stale   []string // names that PostgreSQL still has and no one uses
}

func (s *statements) get(query string) *statement {
	found := s.byQuery[query]
	if found == nil {
		return nil
	}
	s.order.MoveToFront(found)
	return found.Value.(*statement)
}

func (s *statements) name() string {
	s.named++
	return "inbox_" + strconv.FormatUint(s.named, 10)
}

func (s *statements) put(query string, description *pgconn.StatementDescription) *statement {
	if s.byQuery == nil {
		s.byQuery = make(map[string]*list.Element)
	}
	if s.order.Len() >= maxStatements {
		s.forget(s.order.Back().Value.(*statement).query)
	}

	added := &statement{query, description, formatsOf(description.Fields)}
	s.byQuery[query] = s.order.PushFront(added)
	return added
}

// forget leaves a statement to the next describe to be closed. One that failed is prepared anew: a migration may have changed what it returns.
func (s *statements) forget(query string) {
	if found := s.byQuery[query]; found != nil {
		s.stale = append(s.stale, found.Value.(*statement).description.Name)
		s.order.Remove(found)
		delete(s.byQuery, query)
	}
}

// describe returns the statement of a query and prepares it when it is not.
func (c *Connection) describe(ctx context.Context, query string) (*statement, error) {
	if c.wire.IsClosed() {
		return nil, driver.ErrBadConn
	}
	if found := c.statements.get(query); found != nil {
		return found, nil
	}

	found, err := c.describeAll(ctx, []Statement{{Query: query}})
	if err != nil {
		return nil, unsent(err)
	}
	return found[0], nil
}

// describeAll returns the statements of all, and prepares what is missing in one round trip.
func (c *Connection) describeAll(ctx context.Context, all []Statement) ([]*statement, error) {
	found := make([]*statement, len(all))
	missing := map[string]*statement{}
	var order []string
	for i := range all {
		query := all[i].Query
		if found[i] = c.statements.get(query); found[i] != nil {
			continue
		}
		if missing[query] == nil {
			missing[query] = &statement{}
			order = append(order, query)
		}
	}
	if len(order) == 0 {
		return found, nil
	}

	if err := c.prepareAll(ctx, order, missing); err != nil {
		return nil, err
	}
	for i, one := range all {
		if found[i] == nil {
			found[i] = missing[one.Query]
		}
	}
	return found, nil
}

func (c *Connection) prepareAll(ctx context.Context, queries []string, into map[string]*statement) (err error) {
	pipeline := c.wire.StartPipeline(ctx)
	defer func() { err = errors.Join(err, pipeline.Close()) }()

	stale := c.statements.stale
	for _, name := range stale {
		pipeline.SendDeallocate(name)
	}
	names := make([]string, len(queries))
	for i, query := range queries {
		names[i] = c.statements.name()
		pipeline.SendPrepare(names[i], query, nil)
	}
	if err := pipeline.Sync(); err != nil {
		return err
	}

	for range stale {
		if _, err := pipeline.GetResults(); err != nil {
			return err
		}
	}
	c.statements.stale = nil

	for i, query := range queries {
		result, err := pipeline.GetResults()
		if err != nil {
			return err
		}
		description, is := result.(*pgconn.StatementDescription)
		if !is {
			return fmt.Errorf("PostgreSQL answered a statement to be prepared with %T", result)
		}
		description.Name, description.SQL = names[i], query // a pipeline does not tell
		into[query] = c.statements.put(query, description)
	}
	return nil
}

// Statement is a text with its arguments.
type Statement struct {
	Query     string
	Arguments []any
}

// notSent is an error before the first statement of a pipeline was sent.
type notSent struct{ error }

func (n notSent) Unwrap() error { return n.error }

// SafeToRetry is for pgconn.SafeToRetry.
func (notSent) SafeToRetry() bool { return true }

// Run sends statements together, and hands the result of the last one to read, which reads it to its end or as far as it wants. The first that
// fails ends it; those after it are not executed. pgconn.SafeToRetry reports whether an error came before any of them was sent.
func (c *Connection) Run(ctx context.Context, all []Statement, read func(*Rows) error) (err error) {
	described, err := c.describeAll(ctx, all)
	if err != nil {
		return notSent{err}
	}

	type encoded struct {
		values  [][]byte
		formats []int16
	}
	sent := make([]encoded, len(all))
	var buffer []byte
	for i, statement := range described {
		if sent[i].values, sent[i].formats, buffer, err = statement.encode(buffer, all[i].Arguments); err != nil {
			return err
		}
	}

	pipeline := c.wire.StartPipeline(ctx)
	defer func() {
		if failure := pipeline.Close(); err == nil {
			err = failure
		}
	}()

	for i, statement := range described {
		pipeline.SendQueryStatement(statement.description, sent[i].values, sent[i].formats, statement.formats)
	}
	if err := pipeline.Sync(); err != nil {
		return err
	}

	for i, statement := range described {
		result, err := pipeline.GetResults()
		if err != nil {
			c.statements.forget(statement.query)
			return err
		}
		reader, is := result.(*pgconn.ResultReader)
		if !is {
			return fmt.Errorf("PostgreSQL answered a statement with %T", result)
		}

		rows := &Rows{connection: c, query: statement.query, reader: reader}
		if i == len(described)-1 {
			err = read(rows)
		}
		if _, failure := rows.end(); err == nil {
			err = failure
		}
		if err != nil {
			return err
		}
	}
	return nil
}
