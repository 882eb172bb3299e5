package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/children"
)

// readership is many servers with one follower each. They write down what came, by id, and may keep their senders waiting.
type readership struct {
	t       *testing.T
	s       *server
	servers []*load.Community

	mu      sync.Mutex
	came    []map[string]map[string]bool // server → type → ids
	gate    chan struct{}                // while it is there and open, a delivery waits
	changed chan struct{}
}

const readers = 8

// startReadership lets someone at every server follow the agent.
func startReadership(t *testing.T, s *server) *readership {
	t.Helper()
	r := &readership{t: t, s: s, came: make([]map[string]map[string]bool, readers), changed: make(chan struct{})}
	for i := range readers {
		r.came[i] = map[string]map[string]bool{}
		community := newCommunity(t, 1, func(a load.Arrival) { r.arrived(i, a) })
		r.servers = append(r.servers, community)
		(&fediverse{Community: community, t: t}).follow(s, "echo", 0)
	}
	r.await("Accept", readers)
	s.awaitIdle()
	return r
}

func (r *readership) arrived(server int, a load.Arrival) {
	var activity struct{ ID string }
	if err := json.Unmarshal(a.Body, &activity); err != nil {
		r.t.Error(err)
		return
	}
	r.mu.Lock()
	if r.came[server][a.Type] == nil {
		r.came[server][a.Type] = map[string]bool{}
	}
	r.came[server][a.Type][activity.ID] = true
	gate := r.gate
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

// got counts the servers that got something of the type.
func (r *readership) got(kind string) (servers int, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, came := range r.came {
		if len(came[kind]) > 0 {
			servers++
		}
	}
	return servers, r.changed
}

func (r *readership) await(kind string, servers int) {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		got, changed := r.got(kind)
		if got >= servers {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("%d servers got a %s within %s; want %d", got, kind, patience, servers)
		}
	}
}

// killedAmong kills the server when some have the activity and no one has said so yet. Afterwards all have it, and each has
// it under one id.
func (r *readership) killedAmong(kind string, begin func()) {
	r.t.Helper()
	gate := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(gate) })
	r.t.Cleanup(letGo) // the servers of the readers wait for it
	r.mu.Lock()
	r.gate = gate
	r.mu.Unlock()
	begin()
	r.await(kind, 2)
	if err := r.s.Kill(); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.gate = nil
	r.mu.Unlock()
	letGo()
	r.s.start()
	r.await(kind, readers)
	r.s.awaitIdle()
	if all := r.ids(kind); len(all) != 1 {
		r.t.Errorf("the %s came under the ids %v; want one", kind, all)
	}
}

// ids returns the ids of a type and demands that every server got the same.
func (r *readership) ids(kind string) []string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	first := keysOf(r.came[0][kind])
	for i, came := range r.came {
		if ids := keysOf(came[kind]); !slices.Equal(ids, first) {
			r.t.Errorf("server %d got the %s %v, server 0 %v", i, kind, ids, first)
		}
	}
	return first
}

// haveLast demands that every server got the last edit. One that a later edit overtook may have been left out.
func (r *readership) haveLast(turn string) {
	r.t.Helper()
	revisions, err := r.s.Column(r.t.Context(), "SELECT CAST(revision AS TEXT) FROM replies WHERE turn_id = $1", turn)
	if err != nil || len(revisions) != 1 {
		r.t.Fatalf("the revisions are %v (%v)", revisions, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, came := range r.came {
		if ids := keysOf(came["Update"]); !slices.ContainsFunc(ids, func(id string) bool { return strings.HasSuffix(id, "#updates/"+revisions[0]) }) {
			r.t.Errorf("the answer has revision %s; server %d got the edits %v", revisions[0], i, ids)
		}
	}
}

func keysOf(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for key := range set {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// interrupted runs a command and kills it after a while; it may have done its work or not.
func (s *server) interrupted(after time.Duration, arguments ...string) {
	s.t.Helper()
	command := exec.Command(s.Binary, append([]string{"--config", s.ConfigFile()}, arguments...)...)
	if err := children.Start(command); err != nil {
		s.t.Fatal(err)
	}
	<-time.After(after)
	_ = command.Process.Kill()
	_ = await.Result(s.t, command.Wait, "the end of the command") // its error is the kill
}

// TestChangesReachEveryReaderOnceWhateverDies: the server dies amid the fan-out of an answer, of its edit and of its
// deletion, and the commands die anywhere. Every server that has followers has each of them once, or no server has.
func TestChangesReachEveryReaderOnceWhateverDies(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		s := start(t, instance.Settings{Database: database, Lease: "2s"})
		r := startReadership(t, s)
		asker := r.servers[0].Persons[0]
		mention := asker.Mention(s.Actor("echo"), "1", "hello everybody")
		r.killedAmong("Create", func() {
			if status := do(t, delivery(t, asker, s.Actor("echo")+"/inbox", mention, load.Signature{})); status != http.StatusAccepted {
				t.Fatalf("answered %d", status)
			}
		})
		file := filepath.Join(t.TempDir(), "answer.md")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		turn := s.turnOf(mention.ActivityID)
		write("first correction")
		r.killedAmong("Update", func() { s.inbox("edit", turn, file) })
		for i := range 6 {
			write(fmt.Sprintf("correction %d of a command that dies", i))
			s.interrupted(time.Duration(i)*8*time.Millisecond, "edit", turn, file)
		}
		s.awaitIdle()
		r.haveLast(turn)
		for i := range 3 {
			s.interrupted(time.Duration(i)*4*time.Millisecond, "delete", turn)
		}
		if gone, _ := r.got("Delete"); gone == 0 {
			r.killedAmong("Delete", func() { _, _ = s.Run(t.Context(), "delete", turn) }) // one of the three may have been in time
		}
		s.awaitIdle()
		if all := r.ids("Delete"); len(all) != 1 {
			t.Errorf("the Delete came under the ids %v; want one", all)
		}
		if all := r.ids("Create"); len(all) != 1 {
			t.Errorf("the Create came under the ids %v; want one", all)
		}
	})
}

// turnOf returns the id of the turn of a message.
func (s *server) turnOf(message string) string {
	s.t.Helper()
	found, err := s.Column(s.t.Context(), "SELECT id FROM turns WHERE native_id = $1", message)
	if err != nil || len(found) != 1 {
		s.t.Fatalf("the turns of %s are %v (%v)", message, found, err)
	}
	return found[0]
}
