package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"inbox/internal/clock"
	"inbox/internal/disk"
)

// timelineFile keeps in data_dir the newest timeline of PostgreSQL that this node has met, for the next start.
const timelineFile = "database.timeline"

const (
	// serversEvery is the interval between two looks at all servers of the URL.
	serversEvery = 2 * time.Second
	// serversPatience bounds one look at one server.
	serversPatience = 3 * time.Second
	// refusalsEvery bounds how often the log names a server that is refused.
	refusalsEvery = time.Minute
)

// position is where a server stands: each promotion of a standby begins a new timeline with a higher number. The zero value is a standby, or
// a server that does not say.
type position struct {
	system   string // the cluster, which its standbys share
	timeline uint32
}

// primary knows the newest timeline of the database and refuses servers with an older one: a former primary that is running again takes
// writes as well as the new one does, and what it acknowledges is lost.
type primary struct {
	file     string // empty = this process only
	required bool   // a commit must wait for a synchronous standby
	logger   logger

	newest atomic.Uint32 // timeline; 0 = not known
	waits  atomic.Bool   // commits wait for a synchronous standby, as far as required

	lock      sync.Mutex
	system    string // cluster of newest
	connected bool   // this process has used the cluster, and uses no other one
	refusedAt time.Time
	aloneAt   time.Time                 // when the log last named a primary that waits for no standby
	raised    chan struct{}             // closed when a newer timeline becomes known, and replaced
	open      map[*pgconn.PgConn]uint32 // connections with their timelines; some may be closed already
	at        *pgconn.FallbackConfig    // where the newest primary was seen; nil = not known
}

// openPrimary reads what an earlier process has met.
func openPrimary(options Options) (*primary, error) {
	p := &primary{
		required: options.RequireSynchronous, logger: options.Logger, raised: make(chan struct{}), open: map[*pgconn.PgConn]uint32{},
	}
	p.waits.Store(!p.required)
	if options.DataDir == "" {
		return p, nil
	}

	p.file = filepath.Join(options.DataDir, timelineFile)
	text, err := os.ReadFile(p.file)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("data_dir: cannot read %s: %w", timelineFile, disk.Cause(err))
	}

	system, number, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	timeline, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("data_dir: %s is damaged; if database_url leads to the newest primary, remove the file", p.file)
	}
	p.system = system
	p.newest.Store(uint32(timeline))
	return p, nil
}

// formerPrimary is the error of a server that was replaced by another one.
type formerPrimary struct {
	server        string
	found, newest uint32
	file          string
}

// Error says why the server is refused, and what to do.
func (e *formerPrimary) Error() string {
	text := fmt.Sprintf("PostgreSQL at %s is a former primary: it is on timeline %d, and a newer primary is on timeline %d. "+
		"Stop it, make it a standby of the new primary (pg_rewind), and name the new primary in database_url", e.server, e.found, e.newest)
	if e.file != "" {
		text += "; to go back to it and lose what the newer one has, stop all nodes and remove " + e.file + " on each"
	}
	return text
}

// otherCluster is the error of a server that does not belong to the cluster that this process has used.
type otherCluster struct{ server string }

// Error says what to do.
func (e *otherCluster) Error() string {
	return "PostgreSQL at " + e.server + " belongs to another cluster than the one that this node has used since its start; correct database_url, " +
		"or restart all nodes if the database has moved"
}

// connectedTo is the key under which a connection keeps the timeline of its server.
const connectedTo = "inbox: timeline"

// guard makes connections of config check their server, after the checks that the URL demands. After a refusal the next server of the URL is
// tried.
func (p *primary) guard(config *pgconn.Config) {
	demanded := config.ValidateConnect
	config.ValidateConnect = func(ctx context.Context, connection *pgconn.PgConn) error {
		if demanded != nil {
			if err := demanded(ctx, connection); err != nil {
				return err
			}
		}
		return p.check(ctx, connection)
	}
	config.OnNotice = noteUnreplicated
}

// check is called with each new connection.
func (p *primary) check(ctx context.Context, connection *pgconn.PgConn) error {
	found, err := positionOf(ctx, connection)
	if err != nil {
		return err
	}
	server := serverOf(connection)
	if err := p.admit(server, found); err != nil {
		return err
	}

	connection.CustomData()[connectedTo] = found.timeline
	if err := p.checkStandby(ctx, connection); err != nil {
		return err
	}
	return p.register(server, connection, found.timeline)
}

// register keeps a connection, so that it can be cut.
func (p *primary) register(server string, connection *pgconn.PgConn, timeline uint32) error {
	p.lock.Lock()
	defer p.lock.Unlock()
	if newest := p.newest.Load(); timeline != 0 && timeline < newest { // it was admitted a moment ago
		return p.refuse(&formerPrimary{server, timeline, newest, p.file})
	}

	for one := range p.open {
		select {
		case <-one.CleanupDone():
			delete(p.open, one)
		default:
		}
	}
	p.open[connection] = timeline
	return nil
}

// cut ends the connections to servers with an older timeline, also those that are in use: one that is frozen would answer none of the
// statements that wait for it, each of them for its longest time, until no connection is left.
func (p *primary) cut(newest uint32) {
	for connection, timeline := range p.open {
		if timeline != 0 && timeline < newest {
			delete(p.open, connection)
			go func() { _ = connection.Conn().Close() }() // the work that uses it gets the error; with TLS it may take seconds
		}
	}
}

// positionOf asks a server where it stands. Some services offer PostgreSQL without these functions: what they refuse is not known.
func positionOf(ctx context.Context, connection *pgconn.PgConn) (found position, err error) {
	file, err := valueOf(ctx, connection, `SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_lsn()) END`)
	if err != nil || len(file) < 8 {
		return position{}, err
	}
	timeline, err := strconv.ParseUint(file[:8], 16, 32)
	if err != nil {
		return position{}, fmt.Errorf("timeline of the file %q: %w", file, err)
	}

	found.timeline = uint32(timeline)
	found.system, err = valueOf(ctx, connection, `SELECT system_identifier FROM pg_control_system()`)
	return found, err
}

// valueOf returns the one value of a query, or an empty text if the server refuses the query.
func valueOf(ctx context.Context, connection *pgconn.PgConn, query string) (string, error) {
	results, err := connection.Exec(ctx, query).ReadAll()
	failure, refused := errors.AsType[*pgconn.PgError](err)
	switch {
	case refused && !connection.IsClosed() && !unfit(failure):
		return "", nil
	case err != nil:
		return "", err
	case len(results) == 0 || len(results[0].Rows) == 0:
		return "", nil
	}
	return string(results[0].Rows[0][0]), nil
}

// admit refuses a server with an older timeline, and remembers a newer one.
func (p *primary) admit(server string, found position) error {
	if found.timeline == 0 {
		return nil
	}
	p.lock.Lock()
	defer p.lock.Unlock()

	newest := p.newest.Load()
	switch same := p.system == found.system || p.system == "" || newest == 0; {
	case !same && p.connected:
		return p.refuse(&otherCluster{server})
	case !same:
		// pg_upgrade and a restore make a new cluster; whether its rows belong to data_dir is checked by package storage.
		p.logger.Warn("the database is in another PostgreSQL cluster than before", "server", server, "cluster", found.system, "before", p.system)
		p.keep(found)
	case found.timeline < newest:
		return p.refuse(&formerPrimary{server, found.timeline, newest, p.file})
	case found.timeline > newest || p.system == "" && found.system != "":
		p.keep(found)
	}

	p.connected = true
	return nil
}

// note remembers where the newest primary is, and a newer timeline of a server that is not going to be used.
func (p *primary) note(at *pgconn.FallbackConfig, found position) {
	p.lock.Lock()
	defer p.lock.Unlock()

	newest := p.newest.Load()
	if found.timeline == 0 || newest != 0 && (found.timeline < newest || found.system != p.system) {
		return
	}
	p.at = at
	if found.timeline > newest {
		p.keep(found)
	}
}

// putFirst makes the newest primary the first server of a configuration: a frozen one would keep each attempt to connect.
func (p *primary) putFirst(config *pgconn.Config) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.at == nil || p.at.Host == config.Host && p.at.Port == config.Port {
		return
	}

	all := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	slices.SortStableFunc(all, func(a, b *pgconn.FallbackConfig) int { return p.distance(a) - p.distance(b) })
	config.Host, config.Port, config.TLSConfig, config.Fallbacks = all[0].Host, all[0].Port, all[0].TLSConfig, all[1:]
}

func (p *primary) distance(server *pgconn.FallbackConfig) int {
	if server.Host == p.at.Host && server.Port == p.at.Port {
		return 0
	}
	return 1
}

func (p *primary) keep(found position) {
	p.system = found.system
	p.newest.Store(found.timeline)
	p.cut(found.timeline)
	close(p.raised)
	p.raised = make(chan struct{})
	if p.file == "" {
		return
	}
	if err := disk.WritePrivate(p.file, fmt.Sprintf("%s %d\n", found.system, found.timeline)); err != nil {
		p.logger.Warn("the timeline of the database is not kept for the next start; make data_dir writable", "file", p.file, "error", err)
	}
}

func (p *primary) refuse(err error) error {
	if now := time.Now(); now.Sub(p.refusedAt) >= refusalsEvery {
		p.refusedAt = now
		p.logger.Warn("a database server is refused", "error", err)
	}
	return err
}

// current reports whether no newer primary is known than the server of a connection.
func (p *primary) current(connection *pgconn.PgConn) bool {
	timeline, known := connection.CustomData()[connectedTo].(uint32)
	return !known || timeline == 0 || timeline >= p.newest.Load()
}

// errReplaced is why a transaction on a server that was replaced meanwhile does not count.
var errReplaced = errors.New("a newer primary has replaced the database server")

// refuseCommit returns why nothing may be committed on a connection.
func (p *primary) refuseCommit(connection *pgconn.PgConn) error {
	switch {
	case !p.current(connection):
		return errReplaced
	case !p.waits.Load():
		return errAlone
	}
	return nil
}

// doubtCommit returns why a commit that the server has confirmed may be lost by a promotion.
func (p *primary) doubtCommit(connection *pgconn.PgConn) error {
	switch {
	case !p.current(connection):
		return errReplaced
	case unreplicated(connection):
		return errUnreplicated
	}
	return nil
}

// usable reports whether a connection may be used for another transaction.
func (p *primary) usable(connection *pgconn.PgConn) bool {
	return p.current(connection) && !unreplicated(connection)
}

// moved returns a channel that is closed when a newer primary becomes known.
func (p *primary) moved() <-chan struct{} {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.raised
}

// errLooked ends a connection that was only to show the position of its server.
var errLooked = errors.New("looked at the server")

// look asks all servers of a configuration at once for their positions. One that does not answer is skipped.
func (p *primary) look(ctx context.Context, servers []*pgconn.Config) {
	var looks sync.WaitGroup
	for _, server := range servers {
		looks.Go(func() {
			if connection, err := pgconn.ConnectConfig(ctx, server); err == nil {
				_ = connection.Close(ctx) // ValidateConnect refuses all, so there is none
			}
		})
	}
	looks.Wait()
}

// lookAround looks at all servers until ctx ends: a promotion must become known here while connections to the former primary are open.
func (p *primary) lookAround(ctx context.Context, servers []*pgconn.Config) {
	for clock.Sleep(ctx, serversEvery) == nil {
		p.look(ctx, servers)
	}
}

// servers returns a configuration for each server of config that looks at the server, behind each of its addresses, and does not use it.
func (p *primary) servers(config *pgconn.Config) (list []*pgconn.Config) {
	for _, one := range append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...) {
		if len(list) > 0 {
			if last := list[len(list)-1]; last.Host == one.Host && last.Port == one.Port { // the same again without TLS
				last.Fallbacks = append(last.Fallbacks, one)
				continue
			}
		}

		server := config.Copy()
		server.Host, server.Port, server.TLSConfig, server.Fallbacks = one.Host, one.Port, one.TLSConfig, nil
		server.ConnectTimeout = min(server.ConnectTimeout, serversPatience)
		server.ValidateConnect = func(ctx context.Context, connection *pgconn.PgConn) error {
			found, err := positionOf(ctx, connection)
			if err != nil {
				return err
			}
			p.note(one, found)
			if found.timeline >= p.newest.Load() {
				if err := p.checkStandby(ctx, connection); err != nil {
					return err
				}
			}
			return errLooked
		}
		list = append(list, server)
	}
	return list
}

// serverOf names the server of a connection as an operator writes it.
func serverOf(connection *pgconn.PgConn) string {
	address := connection.Conn().RemoteAddr()
	if _, _, err := net.SplitHostPort(address.String()); err != nil {
		return "a local socket"
	}
	return address.String()
}
