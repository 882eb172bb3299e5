package explore

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"modernc.org/sqlite"

	"inbox/engine/store"
	"inbox/exchange"
)

// faults are the changes of rows that end the transaction, by database, table and change. It is what SQLite does when the disk is full or
// fails: it rolls the whole transaction back by itself (sqlite.org/lang_transaction.html, "Response To Errors Within A Transaction").
var faults struct {
	lock  sync.Mutex
	armed string
	met   map[string]int
}

const faultFunction = "explore_fault"

var registerFault = sync.OnceValue(func() error {
	return sqlite.RegisterScalarFunction(faultFunction, 1, func(_ *sqlite.FunctionContext, arguments []driver.Value) (driver.Value, error) {
		faults.lock.Lock()
		defer faults.lock.Unlock()
		change, _ := arguments[0].(string)
		faults.met[change]++
		if change == faults.armed {
			return int64(1), nil
		}
		return int64(0), nil
	})
})

// arm lets a change fail from now on, empty = none, and returns which changes were met since the last call.
func arm(change string) map[string]int {
	faults.lock.Lock()
	defer faults.lock.Unlock()
	met := faults.met
	faults.armed, faults.met = change, map[string]int{}
	return met
}

// newFile makes a world with one node on SQLite, in which each change of a row can fail.
func newFile(t *testing.T) *world {
	t.Helper()
	if err := registerFault(); err != nil {
		t.Fatal(err)
	}
	arm("")

	n := newNode(t, "sqlite", outside{0, newDirector(nil)})
	control, err := sql.Open("sqlite", "file:"+filepath.Join(n.directory, store.File)+"?_pragma=busy_timeout(10000)&_pragma=foreign_keys(ON)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := control.Close(); err != nil {
			t.Error(err)
		}
	})

	w := &world{control: control, nodes: [2]*node{n, n}}
	for _, table := range w.tables(t) {
		for _, change := range []string{"INSERT", "UPDATE", "DELETE"} {
			trigger := fmt.Sprintf(`CREATE TRIGGER explore_%[1]s_%[2]s BEFORE %[2]s ON %[1]s BEGIN
				SELECT CASE WHEN %[3]s('%[2]s %[1]s') = 1 THEN RAISE(ROLLBACK, 'disk I/O error') END; END`, table, change, faultFunction)
			if _, err := control.ExecContext(t.Context(), trigger); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

func (w *world) tables(t *testing.T) (tables []string) {
	t.Helper()
	rows, err := w.control.QueryContext(t.Context(), `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
		AND name NOT LIKE 'goose_%' AND name NOT LIKE 'search_words%' AND name NOT LIKE 'mail_words%'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return tables
}

// TestFaults lets each change of each operation end the transaction on SQLite: the operation says that it failed, what must hold holds, and
// the same operation can be done afterwards.
func TestFaults(t *testing.T) {
	w := newFile(t)
	done := map[string]bool{}
	for _, p := range pairs() {
		for i, operation := range []operation{p.first, p.then} {
			name := p.stage.name + ": " + operation.name
			if done[name] {
				continue
			}
			done[name] = true

			t.Run(name, func(t *testing.T) {
				for _, change := range slices.Sorted(maps.Keys(w.alone(t, p.stage, operation, i, ""))) {
					w.alone(t, p.stage, operation, i, change)
				}
			})
		}
	}
}

// alone does one operation while a change fails, and again without that; it returns which changes it made.
func (w *world) alone(t *testing.T, in stage, operation operation, actor int, change string) map[string]int {
	t.Helper()
	s := &scene{world: w, T: t, name: newID(), failures: [2]error{errNotDone, errNotDone}}
	in.set(s)
	arm(change)
	failure := operation.do(t.Context(), w.nodes[actor], s)
	met := arm("")

	if change != "" {
		if failure == nil && s.state() != exchange.StateFailed { // a run that failed tells its asker
			s.wrongf("no one was told of the failure")
		}
		for _, name := range s.broken() {
			s.wrongf("after the failure it does not hold that %s", name)
		}
		failure = operation.do(t.Context(), w.nodes[actor], s)
	}
	if failure != nil && !refused(failure) {
		s.wrongf("without a fault: %v", failure)
	}
	for _, name := range s.broken() {
		s.wrongf("it does not hold that %s", name)
	}
	in.check(s)
	s.clear()

	if len(s.faults) > 0 {
		t.Errorf("%s fails: %s", change, strings.Join(s.faults, "\n"))
	}
	return met
}
