// Package postgres is what the store needs of PostgreSQL: a driver for database/sql, transactions whose statements travel in pipelines, and
// COPY. It speaks by pgconn, the lower half of pgx; the upper half knows every type of PostgreSQL, arrays and ranges of each included, of
// which a program has three megabytes (decision 0125). Known here are texts, whole and floating numbers, truth values, bytes and times;
// every other type is its text.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// closePatience bounds how long the end of a connection takes.
	closePatience = 5 * time.Second
	// idleUntilPing is after which a connection is asked whether it still lives before it is used.
	idleUntilPing = time.Second
)

// Connector makes connections for a pool of database/sql.
type Connector struct {
	Config *pgconn.Config
	// Order returns the configuration with its servers in the order in which they are to be tried now; nil = as they are.
	Order func(*pgconn.Config) *pgconn.Config
	// Prepare is called with each new connection; nil = nothing is to do.
	Prepare func(context.Context, *pgconn.PgConn) error
	// Fit reports whether a connection that was used before may be used again; nil = always.
	Fit func(*pgconn.PgConn) bool
}

// Connect implements driver.Connector.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	config := c.Config
	if c.Order != nil {
		config = c.Order(config)
	}
	wire, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}

	connection := &Connection{wire: wire, fit: c.Fit}
	if c.Prepare != nil {
		if err := c.Prepare(ctx, wire); err != nil {
			return nil, errors.Join(err, connection.Close())
		}
	}
	return connection, nil
}

// Driver implements driver.Connector.
func (c *Connector) Driver() driver.Driver { return opener{} }

// opener is the driver of a Connector; a pool is opened with the Connector itself.
type opener struct{}

// Open implements driver.Driver.
func (opener) Open(url string) (driver.Conn, error) {
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	return (&Connector{Config: config}).Connect(context.Background())
}

// Connection is one connection. As database/sql demands of a driver, one goroutine uses it at a time.
type Connection struct {
	wire       *pgconn.PgConn
	fit        func(*pgconn.PgConn) bool
	statements statements
	used       time.Time
}

var (
	_ driver.ConnPrepareContext = (*Connection)(nil)
	_ driver.ConnBeginTx        = (*Connection)(nil)
	_ driver.ExecerContext      = (*Connection)(nil)
	_ driver.QueryerContext     = (*Connection)(nil)
	_ driver.Pinger             = (*Connection)(nil)
	_ driver.SessionResetter    = (*Connection)(nil)
	_ driver.NamedValueChecker  = (*Connection)(nil)
)

// Wire returns the connection below: its state, and statements without arguments.
func (c *Connection) Wire() *pgconn.PgConn { return c.wire }

// CheckNamedValue implements driver.NamedValueChecker: what a value may be is judged when it is written.
func (c *Connection) CheckNamedValue(*driver.NamedValue) error { return nil }

// Close implements driver.Conn.
func (c *Connection) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	return c.wire.Close(ctx)
}

// Ping implements driver.Pinger.
func (c *Connection) Ping(ctx context.Context) error {
	if c.wire.IsClosed() {
		return driver.ErrBadConn
	}
	if err := c.wire.Ping(ctx); err != nil {
		_ = c.Close() // it is as good as closed
		return driver.ErrBadConn
	}
	return nil
}

// ResetSession implements driver.SessionResetter: a connection that is lost, unfit or still in a transaction is dropped.
func (c *Connection) ResetSession(ctx context.Context) error {
	if c.wire.IsClosed() || c.wire.TxStatus() != 'I' {
		return driver.ErrBadConn
	}

	now := time.Now()
	if now.Sub(c.used) > idleUntilPing && c.wire.Ping(ctx) != nil {
		return driver.ErrBadConn
	}
	c.used = now

	if c.fit != nil && !c.fit(c.wire) {
		return driver.ErrBadConn
	}
	return nil
}

// Begin implements driver.Conn.
func (c *Connection) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// BeginTx implements driver.ConnBeginTx.
func (c *Connection) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	begin := "BEGIN"
	switch level := sql.IsolationLevel(options.Isolation); level {
	case sql.LevelDefault:
	case sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable:
		begin += " ISOLATION LEVEL " + strings.ToUpper(level.String())
	default:
		return nil, fmt.Errorf("PostgreSQL has no isolation level %q", level)
	}
	if options.ReadOnly {
		begin += " READ ONLY"
	}

	if _, err := c.plain(ctx, begin); err != nil {
		return nil, err
	}
	return transaction{ctx, c}, nil
}

// transaction is one of database/sql, which gives its end no context.
type transaction struct {
	ctx        context.Context
	connection *Connection
}

// ErrRolledBack is what the COMMIT of a transaction comes to in which a statement failed.
var ErrRolledBack = errors.New("PostgreSQL rolled the transaction back")

// Commit implements driver.Tx.
func (t transaction) Commit() error {
	tag, err := t.connection.plain(t.ctx, "COMMIT")
	if err == nil && tag.String() != "COMMIT" {
		return ErrRolledBack
	}
	return err
}

// Rollback implements driver.Tx.
func (t transaction) Rollback() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), closePatience)
	defer cancel()
	_, err := t.connection.plain(ctx, "ROLLBACK")
	return err
}

// plain executes a text without arguments, which may be several statements, and returns what the last one did.
func (c *Connection) plain(ctx context.Context, query string) (tag pgconn.CommandTag, err error) {
	if c.wire.IsClosed() {
		return tag, driver.ErrBadConn
	}

	results := c.wire.Exec(ctx, query)
	for results.NextResult() {
		if tag, err = results.ResultReader().Close(); err != nil {
			break
		}
	}
	return tag, unsent(errors.Join(results.Close(), err))
}

// unsent makes an error before anything was sent one with which database/sql takes another connection.
func unsent(err error) error {
	if err != nil && pgconn.SafeToRetry(err) {
		return driver.ErrBadConn
	}
	return err
}

// Prepare implements driver.Conn.
func (c *Connection) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *Connection) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if _, err := c.describe(ctx, query); err != nil {
		return nil, err
	}
	return prepared{c, query}, nil
}

// prepared is a statement of database/sql. The connection keeps what it prepared, so that its end ends nothing.
type prepared struct {
	connection *Connection
	query      string
}

var (
	_ driver.StmtExecContext  = prepared{}
	_ driver.StmtQueryContext = prepared{}
)

// Close implements driver.Stmt.
func (p prepared) Close() error { return nil }

// NumInput implements driver.Stmt: the connection counts.
func (p prepared) NumInput() int { return -1 }

// Exec implements driver.Stmt.
func (p prepared) Exec([]driver.Value) (driver.Result, error) { return nil, errors.ErrUnsupported }

// Query implements driver.Stmt.
func (p prepared) Query([]driver.Value) (driver.Rows, error) { return nil, errors.ErrUnsupported }

// ExecContext implements driver.StmtExecContext.
func (p prepared) ExecContext(ctx context.Context, arguments []driver.NamedValue) (driver.Result, error) {
	return p.connection.ExecContext(ctx, p.query, arguments)
}

// QueryContext implements driver.StmtQueryContext.
func (p prepared) QueryContext(ctx context.Context, arguments []driver.NamedValue) (driver.Rows, error) {
	return p.connection.QueryContext(ctx, p.query, arguments)
}

// ExecContext implements driver.ExecerContext. A text without arguments may be several statements.
func (c *Connection) ExecContext(ctx context.Context, query string, arguments []driver.NamedValue) (driver.Result, error) {
	var tag pgconn.CommandTag
	var err error
	if len(arguments) == 0 {
		tag, err = c.plain(ctx, query)
	} else {
		var rows *Rows
		if rows, err = c.start(ctx, query, unnamed(arguments)); err == nil {
			tag, err = rows.end()
		}
	}
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

// QueryContext implements driver.QueryerContext.
func (c *Connection) QueryContext(ctx context.Context, query string, arguments []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.start(ctx, query, unnamed(arguments))
	if err != nil {
		return nil, err
	}

	// A statement that fails does so with its first row; who asks learns it here, and may ask another connection.
	cursor := &cursor{rows: rows}
	if cursor.ahead = rows.Next(); !cursor.ahead {
		if _, err := rows.end(); err != nil {
			return nil, err
		}
	}
	return cursor, nil
}

// start sends one statement.
func (c *Connection) start(ctx context.Context, query string, arguments []any) (*Rows, error) {
	statement, err := c.describe(ctx, query)
	if err != nil {
		return nil, err
	}
	values, formats, _, err := statement.encode(nil, arguments)
	if err != nil {
		return nil, err
	}
	reader := c.wire.ExecStatement(ctx, statement.description, values, formats, statement.formats)
	return &Rows{connection: c, query: query, reader: reader}, nil
}

func unnamed(arguments []driver.NamedValue) []any {
	values := make([]any, len(arguments))
	for i, argument := range arguments {
		values[i] = argument.Value
	}
	return values
}

// Quote returns a name as PostgreSQL reads it whatever is in it.
func Quote(name string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(name, "\x00", ""), `"`, `""`) + `"`
}
