package store

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// connectionLife is after which a connection is replaced when it is next needed, at the latest a third later: a server
	// that was promoted, or came back behind the same name, gets its share without a restart of ours.
	connectionLife = 30 * time.Minute
	// connectionIdle ends connections that nobody needs.
	connectionIdle = 5 * time.Minute
	// connectPatience bounds one attempt to connect to one host.
	connectPatience = 10 * time.Second
)

// errOld says that a connection has lived its time.
var errOld = errors.New("the connection has lived its time")

// postgresConfig reads a URL as PostgreSQL's own tools do, several hosts included. Where neither it nor the environment
// says what kind of server is wanted (target_session_attrs), it is one that can be written to.
func postgresConfig(text string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, err
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
	return config, nil
}

// wantsAnyServer reports whether target_session_attrs=any is written, which pgx does not tell from nothing.
func wantsAnyServer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Query().Has("target_session_attrs") || os.Getenv("PGTARGETSESSIONATTRS") != ""
}

// unfit reports whether a connection must not be used again although PostgreSQL has not ended it: its session is read-only
// (25006), or the server or something before it is going away (57P, 08; PostgreSQL manual, appendix A). pgx closes those
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

// openPostgresPool makes the pool; it connects when it is first used. Connections that were made together do not end
// together: each draws its life.
func openPostgresPool(config *pgx.ConnConfig, connections int, life time.Duration) *sql.DB {
	pool := stdlib.OpenDB(*config,
		stdlib.OptionAfterConnect(func(_ context.Context, connection *pgx.Conn) error {
			connection.PgConn().CustomData()[lifeEnd] = time.Now().Add(life + rand.N(life/3+1))
			return nil
		}),
		stdlib.OptionResetSession(func(_ context.Context, connection *pgx.Conn) error {
			if end, ok := connection.PgConn().CustomData()[lifeEnd].(time.Time); ok && time.Now().After(end) {
				return errBroken
			}
			return nil
		}))
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	pool.SetConnMaxIdleTime(connectionIdle)
	return pool
}

// unusablePostgres says which servers were tried, and what to do.
func unusablePostgres(config *pgx.ConnConfig, err error) string {
	hosts := []string{config.Host + ":" + strconv.Itoa(int(config.Port))}
	for _, other := range config.Fallbacks {
		if host := other.Host + ":" + strconv.Itoa(int(other.Port)); host != hosts[len(hosts)-1] { // the same again without TLS
			hosts = append(hosts, host)
		}
	}
	text := "PostgreSQL at " + strings.Join(hosts, ", ") + " cannot be used; "
	if errors.Is(err, pgconn.ErrReadOnlyConnection) || readOnly(err) {
		return text + "it is read-only: name the primary in database_url, or make the server writable"
	}
	return text + "check database_url and that the server runs"
}
