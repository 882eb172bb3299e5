package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/postgres"
)

var repeated = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_store_repeats_total", Help: "Transactions that PostgreSQL asked to run again: deadlocks and lost races.",
})

// maxAttempts bounds how often a transaction runs when PostgreSQL asks to run it again.
const maxAttempts = 8

// postgresEngine is a pool of equal connections. Transactions use its connections themselves, for their pipelines.
type postgresEngine struct {
	statements
	config      *pgconn.Config
	primary     *primary
	connections int
	announcer   *announcer
	logger      logger

	endLooks context.CancelFunc
	looks    sync.WaitGroup
}

func openPostgres(ctx context.Context, options Options) (Engine, error) {
	config, schema, err := postgresConfig(options.URL)
	if err != nil {
		return nil, fault.Wrap(fault.Malformed, "database_url is not a PostgreSQL URL", err)
	}

	known, err := openPrimary(options)
	if err != nil {
		return nil, err
	}
	servers := known.servers(config)
	if len(servers) > 1 {
		known.look(ctx, servers) // the first one may be a former primary
	}
	known.guard(config)
	noticeSilence(config)

	pool := openPostgresPool(config, options.Connections, connectionLife, known)
	err = refuseSharedSessions(ctx, pool, config)
	if err == nil {
		err = makeSchema(ctx, pool, schema)
	}
	if err == nil {
		err = migrateOrKeep(ctx, pool, postgresSchema, options.AsFound, options.Logger)
	}
	if err != nil {
		return nil, errors.Join(unusable(unusablePostgres(config, err), err), pool.Close())
	}

	e := &postgresEngine{
		statements: statements{pool: pool, failed: postgresFault, outage: &outage{logger: options.Logger, remedy: postgresRemedy}}, config: config, primary: known, connections: options.Connections,
		logger: options.Logger,
	}
	e.lost = e.lostRead
	looking, end := context.WithCancel(context.Background())
	e.endLooks = end
	e.looks.Go(func() { known.lookAround(looking, servers) })
	e.announcer = startAnnouncer(pool, e.outage)
	return e, nil
}

// makeSchema makes the schema that a URL names alone in its search_path: further domains of a server have one each. Where several nodes
// make it at once, PostgreSQL refuses all but one, with the codes below, and it is there.
func makeSchema(ctx context.Context, pool *sql.DB, name string) error {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return nil
	}
	_, err := pool.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+postgres.Quote(name))
	if failure, is := errors.AsType[*pgconn.PgError](err); is && (failure.Code == "23505" || failure.Code == "42P06") {
		return nil
	}
	return err
}

func (e *postgresEngine) Transact(ctx context.Context, work func(Session) error) error {
	again := true
	for attempt := 1; ; attempt++ {
		lost, err := e.once(ctx, work)
		if lost && again && ctx.Err() == nil {
			again = false
			continue
		}
		if err == nil || attempt == maxAttempts || !repeatable(err) {
			return e.outage.note(err)
		}

		repeated.Inc()
		if clock.Sleep(ctx, rand.N(time.Duration(attempt)*5*time.Millisecond)) != nil {
			return e.outage.note(err)
		}
	}
}

// renew closes the idle connections: where one was lost, a restarted server or a firewall has ended the others too, and
// each would cost a caller a failure.
func (e *postgresEngine) renew() {
	e.pool.SetMaxIdleConns(0)
	e.pool.SetMaxIdleConns(e.connections)
}

// lostRead reports whether a query failed with its connection, so that another one may answer it.
func (e *postgresEngine) lostRead(err error) bool {
	var failure *pgconn.PgError
	if errors.As(err, &failure) && !unfit(failure) {
		return false
	}
	e.renew()
	return true
}

// once runs work in one transaction of one connection. Lost = the connection broke before COMMIT was sent, so that nothing was done.
func (e *postgresEngine) once(ctx context.Context, work func(Session) error) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()

	connection, err := e.pool.Conn(ctx)
	if err != nil {
		return false, Unavailable("connect", err)
	}
	defer connection.Close()

	var result error
	err = connection.Raw(func(driverConnection any) error {
		session := &postgresSession{connection: driverConnection.(*postgres.Connection)}
		result = guarded(work, session)
		wire := session.connection.Wire()
		if result == nil {
			if err := e.primary.refuseCommit(wire); err != nil {
				lost, result = errors.Is(err, errReplaced), Unavailable("commit", err)
			}
		}
		if result == nil {
			result = session.commit(ctx)
			if result == nil && session.begun {
				if err := e.primary.doubtCommit(wire); err != nil {
					result = unknown("commit", err)
				}
			}
		}

		if wire.IsClosed() && ctx.Err() == nil {
			lost = lost || fault.OutcomeOf(result) == fault.NotDone
			e.renew()
		}

		return session.release(result)
	})

	return lost, errors.Join(result, hideBadConnection(err))
}

func (e *postgresEngine) Reader() Querier { return &e.statements }

// HasSchema implements Engine.
func (e *postgresEngine) HasSchema(ctx context.Context) (bool, error) {
	return postgresSchema.exists(ctx, e.Reader())
}

func (e *postgresEngine) Kind() string          { return Postgres }
func (e *postgresEngine) Announce(wakes []Wake) { e.announcer.add(wakes) }

func (e *postgresEngine) Ping(ctx context.Context) error {
	if err := e.pool.PingContext(ctx); err != nil {
		return Unavailable("ping", err)
	}
	return nil
}

func (e *postgresEngine) Close() error {
	e.endLooks()
	e.looks.Wait()
	e.announcer.stop()
	return errors.Join(e.close(), e.pool.Close())
}

// repeatable reports whether the same transaction may succeed now: a serialization failure, a deadlock, or one of the
// unique indexes that decide races between nodes.
func repeatable(err error) bool {
	var failure *pgconn.PgError
	if !errors.As(err, &failure) {
		return false
	}

	switch failure.Code {
	case "40001", "40P01":
		return true
	case "23505":
		return failure.ConstraintName == "jobs_running" || failure.ConstraintName == "events_pkey"
	}
	return false
}

// postgresFault classes an error: what the statement itself got wrong stays as it is, everything else means that
// the database cannot serve now (PostgreSQL manual, appendix A: classes 08, 25, 40, 53, 55, 57, 58, XX).
func postgresFault(operation string, err error) error {
	if err == nil || fault.Is(err, fault.Unavailable) {
		return err
	}
	var failure *pgconn.PgError
	if !errors.As(err, &failure) {
		return Unavailable(operation, err)
	}
	if postgresDamaged(failure) {
		return damagedStore(operation, err)
	}

	for _, class := range []string{"08", "25", "40", "53", "55", "57", "58", "XX"} {
		if strings.HasPrefix(failure.Code, class) {
			return Unavailable(operation, err)
		}
	}
	if repeatable(err) {
		return Unavailable(operation, err)
	}

	return operationError{operation, err}
}

func hideBadConnection(err error) error {
	if errors.Is(err, errBroken) {
		return nil
	}
	return err
}

const (
	// connectionLife is after which a connection is replaced when it is next needed, at the latest a third later: a server
	// that was promoted, or came back behind the same name, gets its share without a restart of ours.
	connectionLife = 30 * time.Minute
	// connectionIdle ends connections that are not needed.
	connectionIdle = 5 * time.Minute
	// connectPatience bounds one attempt to connect to one host.
	connectPatience = 10 * time.Second
)

// errOld reports that a connection has lived its time.
var errOld = errors.New("the connection has lived its time")

// postgresConfig reads a URL as PostgreSQL's own tools do, several hosts included. Where neither it nor the environment
// names the kind of server that is wanted (target_session_attrs), it is one that can be written to. Schema is the search_path of the URL.
func postgresConfig(text string) (config *pgconn.Config, schema string, err error) {
	config, err = pgconn.ParseConfig(text)
	if err != nil {
		return nil, "", err
	}
	if config.ValidateConnect == nil && !wantsAnyServer(text) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}

	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "inbox"
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectPatience
	}

	closes := config.OnPgError
	config.OnPgError = func(connection *pgconn.PgConn, failure *pgconn.PgError) bool {
		return closes(connection, failure) && !unfit(failure)
	}

	schema = config.RuntimeParams["search_path"]
	delete(config.RuntimeParams, "search_path")
	config.AfterConnect = func(ctx context.Context, connection *pgconn.PgConn) error { return setSession(ctx, connection, schema) }
	return config, schema, nil
}

// setSession makes the settings of a new session.
func setSession(ctx context.Context, connection *pgconn.PgConn, schema string) error {
	if _, err := connection.Exec(ctx, sessionSettings).ReadAll(); err != nil || schema == "" {
		return err
	}
	return connection.ExecParams(ctx, "SELECT set_config('search_path', $1, false)", [][]byte{[]byte(schema)}, nil, nil, nil).Read().Err
}

// wantsAnyServer reports whether target_session_attrs=any is written, which pgconn does not tell from nothing.
func wantsAnyServer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Query().Has("target_session_attrs") || os.Getenv("PGTARGETSESSIONATTRS") != ""
}

// unfit reports whether a connection must not be used again although PostgreSQL has not ended it: its session is read-only
// (25006), or the server or something before it is going away (57P, 08; PostgreSQL manual, appendix A). pgconn closes those
// that end with FATAL by itself; a proxy may say the same with ERROR.
func unfit(failure *pgconn.PgError) bool {
	return failure.Code == "25006" || strings.HasPrefix(failure.Code, "57P") || strings.HasPrefix(failure.Code, "08")
}

// readOnly reports whether the session or its server takes no changes.
func readOnly(err error) bool {
	failure, found := errors.AsType[*pgconn.PgError](err)
	return found && failure.Code == "25006"
}

// lifeEnd is where a connection keeps when it has lived its time.
const lifeEnd = "inbox: life ends"

// sessionSettings bound how long PostgreSQL keeps the locks of a node that hangs in a transaction (longer than maxWait), and of one whose
// machine is gone. Those of the planner are for statements that read few rows: by its defaults, which are for disks that turn, PostgreSQL reads
// and sorts all of a range of an index for the newest fifty, and compiles statements for longer than they run. They are not parameters of the
// connection, because poolers refuse these.
const sessionSettings = "SET idle_in_transaction_session_timeout = '60s'; " +
	"SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; " +
	"SET random_page_cost = 1.1; SET jit = off"

// openPostgresPool makes the pool; it connects when it is first used. Connections that were made together do not end
// together: each draws its life.
// Connections to a former primary are replaced, too, where the newest one is known; nil = it is not.
func openPostgresPool(config *pgconn.Config, connections int, life time.Duration, known *primary) *sql.DB {
	connector := &postgres.Connector{
		Config: config,
		Prepare: func(_ context.Context, connection *pgconn.PgConn) error {
			connection.CustomData()[lifeEnd] = time.Now().Add(life + rand.N(life/3+1))
			return nil
		},
		Fit: func(connection *pgconn.PgConn) bool {
			end, ok := connection.CustomData()[lifeEnd].(time.Time)
			return (known == nil || known.usable(connection)) && (!ok || !time.Now().After(end))
		},
	}
	if known != nil {
		connector.Order = known.first
	}

	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	pool.SetConnMaxIdleTime(connectionIdle)
	return pool
}

// unusablePostgres names the servers that were tried, and what to do.
func unusablePostgres(config *pgconn.Config, err error) string {
	hosts := []string{config.Host + ":" + strconv.Itoa(int(config.Port))}
	for _, other := range config.Fallbacks {
		if host := other.Host + ":" + strconv.Itoa(int(other.Port)); host != hosts[len(hosts)-1] { // the same again without TLS
			hosts = append(hosts, host)
		}
	}

	text := "PostgreSQL at " + strings.Join(hosts, ", ") + " cannot be used; "
	if errors.Is(err, errShared) {
		return text + errShared.Error()
	}
	if errors.Is(err, errSilent) {
		return text + errSilent.Error()
	}
	if former, is := errors.AsType[*formerPrimary](err); is {
		return text + former.Error()
	}
	if other, is := errors.AsType[*otherCluster](err); is {
		return text + other.Error()
	}
	if failure, is := errors.AsType[*pgconn.PgError](err); is {
		switch failure.Code {
		case "42P05", "26000":
			return text + errShared.Error()
		case "53300":
			return text + "no connection is free: raise max_connections, or the limit of the role or the database, or lower database.connections"
		case "08P01":
			return text + "a pooler refuses the connection: if it lacks room, raise max_client_conn and default_pool_size of PgBouncer, or lower database.connections"
		}
	}
	if errors.Is(err, pgconn.ErrReadOnlyConnection) || readOnly(err) {
		return text + "it is read-only: name the primary in database_url, or make the server writable"
	}
	return text + "check database_url and that the server runs"
}

// errBroken makes database/sql drop a connection.
var errBroken = driver.ErrBadConn

// postgresSession is one transaction. Statements whose result no caller needs wait for the next one whose result a caller
// does need and travel with it in one pipeline: an acceptance takes two round trips instead of six.
type postgresSession struct {
	connection *postgres.Connection
	pending    []postgres.Statement
	begun      bool
}

func (s *postgresSession) Do(_ context.Context, query string, arguments ...any) error {
	s.queue(query, arguments)
	return nil
}

func (s *postgresSession) Change(ctx context.Context, query string, arguments ...any) (int64, error) {
	s.queue(query, arguments)
	var changed int64
	err := s.send(ctx, func(rows *postgres.Rows) (err error) {
		changed, _, err = rows.Changed()
		return err
	})

	return changed, postgresFault("write", err)
}

func (s *postgresSession) Each(ctx context.Context, query string, arguments []any, scan func(Row) error) error {
	s.queue(query, arguments)
	var scanned error
	err := s.send(ctx, func(rows *postgres.Rows) error {
		for scanned == nil && rows.Next() {
			scanned = scan(rows)
		}
		return rows.Err()
	})

	return errors.Join(scanned, postgresFault("read", err))
}

func (s *postgresSession) queue(query string, arguments []any) {
	if !s.begun {
		s.begun = true
		s.pending = append(s.pending, postgres.Statement{Query: "BEGIN"})
	}
	s.pending = append(s.pending, postgres.Statement{Query: query, Arguments: arguments})
}

// send sends what is pending and returns the result of the last statement to last.
func (s *postgresSession) send(ctx context.Context, last func(*postgres.Rows) error) error {
	pending := s.pending
	s.pending = nil
	return s.connection.Run(ctx, pending, last)
}

// commit sends COMMIT. It is done when PostgreSQL confirms it, whatever happens to the connection afterwards; a transaction in which
// a statement failed is confirmed as rolled back.
func (s *postgresSession) commit(ctx context.Context) error {
	if !s.begun {
		return nil
	}

	done := false
	s.pending = append(s.pending, postgres.Statement{Query: "COMMIT"})
	err := s.send(ctx, func(rows *postgres.Rows) error {
		_, command, err := rows.Changed()
		if done = err == nil && command == "COMMIT"; err == nil && !done {
			return postgres.ErrRolledBack
		}
		return err
	})

	switch {
	case done:
		return nil
	case s.unanswered(err):
		return unknown("commit", err)
	}
	return postgresFault("commit", err)
}

// unanswered reports whether the connection ended after COMMIT was sent and before PostgreSQL said what became of it. On a connection
// that goes on, an error is its answer; in a read-only transaction there is nothing to commit.
func (s *postgresSession) unanswered(err error) bool {
	return s.connection.Wire().IsClosed() && !pgconn.SafeToRetry(err) && !readOnly(err)
}

// release leaves the connection without a transaction, or has it dropped.
func (s *postgresSession) release(result error) error {
	wire := s.connection.Wire()
	if wire.IsClosed() {
		return errBroken
	}
	if result == nil || wire.TxStatus() == 'I' {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	if _, err := wire.Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
		return errBroken
	}

	return nil
}

// Size returns the bytes of the database. How many of them hold nothing, PostgreSQL does not say without an extension: 0.
func (e *postgresEngine) Size(ctx context.Context) (total, free int64, err error) {
	err = e.Each(ctx, `SELECT pg_database_size(current_database())`, nil, func(r Row) error { return r.Scan(&total) })
	return total, 0, err
}

// vacuumed are the tables that had something of a person.
var vacuumed = []string{
	"turns", "turn_parties", "originals", "events", "replies", "deliveries", "jobs", "documents", "tokens", "demands", "audit", "links", "dispatches",
	"tool_requests", "task_runs", "destinations", "list_entries", "mail_suppressions", "mail_failures", "watches", "bridge_items", "sessions",
	"session_map", "session_messages", "unanswered", "run_results", "erasures", "erasure_turns",
	"arrivals", "search_words", "search_pending", "mails", "mail_gone", "mail_words", "mail_originals", "notices", "notice_ways", "notice_tallies", "notice_conditions",
}

// Replaced does nothing: PostgreSQL forgets replaced rows by itself.
func (e *postgresEngine) Replaced(context.Context) {}

// ForgetFree lets PostgreSQL forget removed rows at once.
func (e *postgresEngine) ForgetFree(ctx context.Context) (remains []string, err error) {
	remains = []string{"the write-ahead log, archives and replicas of PostgreSQL keep removed rows as long as they are set to"}
	for _, table := range vacuumed {
		if _, err := e.pool.ExecContext(ctx, "VACUUM "+table); err != nil {
			if ctx.Err() != nil {
				return nil, Unavailable("vacuum", err)
			}
			return append(remains, "PostgreSQL did not let this user vacuum "+table+"; its autovacuum does it later"), nil
		}
	}
	return remains, nil
}
