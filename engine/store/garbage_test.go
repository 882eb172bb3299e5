package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/normalized"
)

// brokenBlobs fails as a process does that dies before the bytes are gone.
type brokenBlobs struct{ err error }

func (b brokenBlobs) DeleteIdle(context.Context, string, time.Time) (bool, error) {
	return false, b.err
}

// TestErasedFilesAreDeleted: the bytes of an erased original and of its files go when nothing refers to them any more, also
// after a crash in the middle; what another sender's message has stays.
func TestErasedFilesAreDeleted(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			ctx, directory := t.Context(), t.TempDir()
			s := openWith(t, store.Options{URL: url(t)})
			blobs, err := blob.OpenFiles(directory, blob.Options{})
			if err != nil {
				t.Fatal(err)
			}

			put := func(text string) string {
				digest, err := blobs.PutBytes(ctx, []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				return digest
			}

			original, own, shared := put("a long mail"), put("a picture"), put("a picture that two have")
			insert := func(id, original string, files ...string) exchange.TurnRecord {
				turn := exchange.TurnRecord{
					ID: id, Agent: "echo", Principal: "p " + id, ThreadID: id, State: exchange.StateAnswered, AcceptedAt: time.Now(),
					Message: normalized.Message{
						ID: id, ThreadID: id, Recipient: "@echo@inbox.test", ReceivedVia: normalized.ViaEmail, Parts: []normalized.Part{normalized.Text("hello")},
						Raw: normalized.Raw{MediaType: "message/rfc822", Ref: "sha256:" + original},
					},
				}

				for _, digest := range files {
					turn.Message.Parts = append(turn.Message.Parts, normalized.Part{
						Kind: normalized.PartFile, MIME: "image/png", BytesRef: &normalized.BytesRef{Kind: "content_addressed", Algo: "sha256", Digest: digest},
					})
				}

				err := s.InTx(ctx, func(tx *store.Tx) error {
					_, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: original, MediaType: "message/rfc822"})
					return err
				})
				if err != nil {
					t.Fatal(err)
				}

				return turn
			}

			first := insert("01936f2a-0000-7000-8000-00000000000a", original, own, shared)
			second := insert("01936f2a-0000-7000-8000-00000000000b", put("another long mail"), shared)
			sweep := func(idle time.Duration, want int) {
				t.Helper()
				if deleted, err := s.SweepBlobs(ctx, blobs, idle); err != nil || deleted != want {
					t.Fatalf("%d deleted, %v; want %d", deleted, err, want)
				}
			}

			has := func(digest string, want bool) {
				t.Helper()
				if _, err := blobs.Stat(ctx, digest); fault.Is(err, fault.NotFound) == want {
					t.Errorf("%s: %v", digest, err)
				}
			}

			sweep(0, 0)
			has(original, true)
			withdraw := func(turnID string) {
				t.Helper()
				err := s.InTx(ctx, func(tx *store.Tx) error {
					_, err := tx.WithdrawTurn(ctx, turnID, time.Now())
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}

			withdraw(first.ID)
			if _, err := s.SweepBlobs(ctx, brokenBlobs{errors.New("killed")}, 0); err == nil {
				t.Fatal("the failure is not reported")
			}

			sweep(time.Hour, 0) // it was put just now
			has(original, true)
			if err := os.Remove(filepath.Join(directory, own[:2], own[2:4], own)); err != nil { // killed after the bytes were gone
				t.Fatal(err)
			}

			sweep(-time.Second, 2)
			has(original, false)
			has(own, false)
			has(shared, true)
			if left, err := s.Garbage(ctx, "", 10); err != nil || len(left) != 0 {
				t.Errorf("%v is left, %v", left, err)
			}

			third := insert("01936f2a-0000-7000-8000-00000000000c", put("a third mail"), shared)
			withdraw(third.ID)
			seen, err := s.Garbage(ctx, "", 10)
			if err != nil || len(seen) != 2 {
				t.Fatalf("%v, %v", seen, err)
			}

			withdraw(second.ID) // after a sweep has found that the second one needs it
			for _, content := range seen {
				if err := s.DropGarbage(ctx, content); err != nil {
					t.Fatal(err)
				}
			}

			sweep(-time.Second, 2)
			has(shared, false)
		})
	}
}

// files is a blob store whose contents can be made older.
type files struct {
	*testing.T
	*blob.Files
	directory string
}

func openFiles(t *testing.T) files {
	t.Helper()
	directory := t.TempDir()
	opened, err := blob.OpenFiles(directory, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}

	return files{t, opened, directory}
}

// put keeps a content that was put so long ago.
func (f files) put(content string, ago time.Duration) string {
	f.Helper()
	digest, err := f.PutBytes(f.Context(), []byte(content))
	at := time.Now().Add(-ago)
	if err == nil {
		err = os.Chtimes(filepath.Join(f.directory, digest[:2], digest[2:4], digest), at, at)
	}
	if err != nil {
		f.Fatal(err)
	}
	return digest
}

func (f files) has(digest string) bool {
	_, err := f.Stat(f.Context(), digest)
	return !fault.Is(err, fault.NotFound)
}

// insertRow writes a row with the given texts and something in every other column.
func insertRow(t *testing.T, s *store.Store, table string, texts map[string]string) {
	t.Helper()
	columns, err := s.Columns(t.Context(), table)
	if err != nil || len(columns) == 0 {
		t.Fatalf("columns of %s: %v, %v", table, columns, err)
	}

	names := slices.Sorted(maps.Keys(columns))
	var places []string
	var values []any
	for i, name := range names {
		places = append(places, fmt.Sprintf("$%d", i+1))
		text, given := texts[name]
		switch {
		case given:
			values = append(values, text)
		case columns[name] == "text":
			values = append(values, "x") // so that rows refer to each other
		default:
			values = append(values, int64(0))
		}
	}

	statement := "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(places, ", ") + ")"
	if err := s.Execute(t.Context(), statement, values...); err != nil {
		t.Fatalf("%s: %v", table, err)
	}
}

// TestOrphansAreSwept: a content to which no row refers goes when it is old; every kind of row keeps what it refers to, and
// what was put lately stays, because its row may be on the way.
func TestOrphansAreSwept(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			ctx, s, contents := t.Context(), openWith(t, store.Options{URL: url(t)}), openFiles(t)
			kept := map[string]string{"being accepted": contents.put("being accepted", time.Hour)}
			tables := []string{"turns", "replies"} // others refer to them
			for table := range maps.Keys(store.ReferringTexts()) {
				if !slices.Contains(tables, table) {
					tables = append(tables, table)
				}
			}

			for _, table := range tables {
				texts := map[string]string{}
				for _, column := range store.ReferringTexts()[table] {
					what := table + "." + column
					digest := contents.put(what, 48*time.Hour)
					kept[what], texts[column] = digest, `{"parts":[{"bytes_ref":{"kind":"content_addressed","digest":"`+digest+`"}}]}`
				}

				insertRow(t, s, table, texts)
			}

			captured := contents.put("a captured mail", 48*time.Hour)
			kept["a captured mail"] = captured
			if err := s.State().Put(ctx, "captured", "1", []byte(`{"blob":"`+captured+`"}`), time.Time{}); err != nil {
				t.Fatal(err)
			}

			original := contents.put("a long original", 48*time.Hour)
			kept["a long original"] = original
			insertRow(t, s, "originals", map[string]string{"digest": original, "encoding": "blob"})

			var orphans []string
			for n := range 20 {
				orphans = append(orphans, contents.put(fmt.Sprint("refused ", n), 48*time.Hour))
			}

			broken := errors.New("the disk is away")
			if _, err := s.SweepOrphans(ctx, brokenFiles{contents, broken}, 24*time.Hour); !errors.Is(err, broken) {
				t.Errorf("a failure is not reported: %v", err)
			}

			deleted, err := s.SweepOrphans(ctx, contents, 24*time.Hour)
			if err != nil || deleted != len(orphans) {
				t.Errorf("%d deleted, %v; want %d", deleted, err, len(orphans))
			}

			for what, digest := range kept {
				if !contents.has(digest) {
					t.Errorf("the content of %s is gone", what)
				}
			}

			for _, digest := range orphans {
				if contents.has(digest) {
					t.Errorf("orphan %s is there", digest)
				}
			}
		})
	}
}

type brokenFiles struct {
	files
	err error
}

func (b brokenFiles) DeleteIdle(context.Context, string, time.Time) (bool, error) {
	return false, b.err
}

// whileListed accepts a message just after its content was found to be old and unreferred.
type whileListed struct {
	files
	accept func(digest string)
}

func (w whileListed) EachIdle(ctx context.Context, since time.Time, visit func(string) error) error {
	return w.files.EachIdle(ctx, since, func(digest string) error {
		w.accept(digest)
		return visit(digest)
	})
}

// TestSweepingWhileAccepting: who puts a content again while it is being swept has it afterwards.
func TestSweepingWhileAccepting(t *testing.T) {
	s, contents := openWith(t, store.Options{}), openFiles(t)
	digest := contents.put("a picture", 48*time.Hour)
	accepting := whileListed{contents, func(string) {
		if _, err := contents.PutBytes(t.Context(), []byte("a picture")); err != nil {
			t.Fatal(err)
		}
	}}
	if deleted, err := s.SweepOrphans(t.Context(), accepting, 24*time.Hour); err != nil || deleted != 0 || !contents.has(digest) {
		t.Errorf("%d deleted, %v", deleted, err)
	}
}

// TestOrphansAmongMany reads more rows than a page has.
func TestOrphansAmongMany(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			ctx, s, contents := t.Context(), openWith(t, store.Options{URL: url(t)}), openFiles(t)
			var needed []string
			for n := range 6 {
				needed = append(needed, contents.put(fmt.Sprint("needed ", n), 48*time.Hour))
			}

			err := s.InTx(ctx, func(tx *store.Tx) error {
				for n := range 600 {
					value := []byte(`{}`)
					if n%100 == 99 {
						value = []byte(`{"blob":"` + needed[n/100] + `"}`)
					}
					if err := tx.PutDocument(ctx, fmt.Sprint("space", n%3), fmt.Sprintf("%04d", n), value, time.Time{}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}

			err = s.InTx(ctx, func(tx *store.Tx) error {
				for n := range 600 {
					turn := sample(int64(n))
					turn.Message.Raw.Ref = "sha256:" + strings.Repeat("0", 60) + fmt.Sprintf("%04d", n)
					if _, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: strings.Repeat("0", 60) + fmt.Sprintf("%04d", n)}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}

			orphan := contents.put("orphan", 48*time.Hour)
			if deleted, err := s.SweepOrphans(ctx, contents, 24*time.Hour); err != nil || deleted != 1 || contents.has(orphan) {
				t.Errorf("%d deleted, %v", deleted, err)
			}

			for _, digest := range needed {
				if !contents.has(digest) {
					t.Error("a content that is needed is gone")
				}
			}
		})
	}
}

// TestEveryTextIsConsidered: a new column is read by the sweep, or it is said here that it refers to no contents.
func TestEveryTextIsConsidered(t *testing.T) {
	s := openWith(t, store.Options{})
	without := map[string]bool{}
	for _, column := range []string{
		"turns.agent", "turns.recipient", "turns.received_via", "turns.principal", "turns.native_id", "turns.thread_id", "turns.reference",
		"turns.state", "turns.reason", "turns.outcome", "turns.network", "turns.carrier", "turns.channel", "turns.trace", "turns.request", "turns.conversation", "turns.original_digest", // the original's row reports whether it is a content
		"originals.digest", "originals.media_type", "originals.encoding", "originals.body", // the digest is read
		"replies.agent", "replies.native_id", "deliveries.agent", "deliveries.channel", "deliveries.native_id", "deliveries.destination",
		"deliveries.state", "deliveries.reason", "deliveries.action", "deliveries.trace", "deliveries.done",
		"jobs.kind", "jobs.partition_of", "jobs.state", "jobs.lease_owner", "jobs.reason", "jobs.group_of",
		"documents.namespace", "documents.encoding", "tokens.name", "tokens.agent", "tokens.hash", "tokens.scope",
		"demands.agent", "demands.kind", "demands.purpose", "demands.status", "demands.state_hash", "demands.code_hash",
		"audit.code", "audit.agent", "audit.principal", "audit.detail",
		"links.agent", "links.first_principal", "links.first_issuer", "links.first_subject", "links.first_method", "links.first_address",
		"links.second_principal", "links.second_issuer", "links.second_subject", "links.second_method", "links.second_address", "links.digest", // of what was shown, which is kept nowhere
		"dispatches.state", "dispatches.earlier_thread", "tool_requests.agent", "tool_requests.tool_name", "tool_requests.status",
		"destinations.channel", "destinations.destination", "destinations.reason",
		"list_entries.list", "list_entries.kind", "list_entries.target", "list_entries.agent", "list_entries.effect", "list_entries.reason", "list_entries.source",
		"mail_suppressions.address", "mail_suppressions.kind", "mail_suppressions.reason", "mail_failures.address",
		"watches.agent", "watches.principal", "watches.reference", "watches.name", "blob_garbage.digest",
		"bridge_clients.token_hash", "bridge_clients.secret", "bridge_items.status", "bridge_items.position",
		"sessions.owner", "sessions.agent", "sessions.title", "sessions.connector", "sessions.conversation",
		"unanswered.account", "unanswered_sums.account", "back_ends.agent", "back_ends.reason", "events.kind",
		"mails.kind", "mails.mailbox", "mails.sender", "mails.sender_host", "mails.head", "mails.content", // files of a mail are in its original
		"mail_originals.encoding", "mail_originals.body", "mail_sums.account",
		"mail_reports.kind", "mail_reports.reporter", "mail_reports.proof", "mail_reports.organization", "mail_reports.domain", "mail_reports.policy",
		"mail_reports.source", "mail_reports.peer", "mail_reports.disposition", "mail_reports.dkim", "mail_reports.spf", "mail_reports.result", "mail_reports.detail",
		"notice_tallies.kind", "notice_tallies.subject", "notice_tallies.newest", "notice_tallies.second", "notice_tallies.third", // ids and reasons
		"notice_conditions.kind", "notice_conditions.subject", "notice_conditions.state", "notice_conditions.reason",
		"notices.kind", "notices.subject", "notices.phase", "notices.title", "notices.text", "notices.body",
		"notice_ways.address", "notice_ways.state", "notice_ways.reason",
		"retention_cursors.name", "retention_later.name", "retention_originals.digest", // the digest is an original's
		"erasures.stage", "erasures.requested_by", "erasures.person", "erasures.receipt",
		"turns.sender", "turns.sender_domain", "turns.audience", "turn_parties.principal", "search_state.rebuild_before", "search_state.stamp",
		"arrivals.place", "arrivals.sender", "arrivals.sender_domain", "arrivals.principal",
		"takeovers.agent", "takeovers.holder", "takeovers.ended_by", "takeovers.note", "takeovers.told_turn",
		"console_sessions.hash", "console_sessions.name", "console_sessions.subject", "console_sessions.members", "console_sessions.address", "console_sessions.agent",
		"task_runs.owner", "agent_uploads.agent", "agent_upload_sums.agent", "channel_hours.agent", "channel_hours.channel",
		"run_results.status", "run_results.left_out", "run_results.body", "run_results.audit", // a document names files and does not keep them: they are those of its message
	} {
		without[column] = true
	}

	for table, columns := range store.ReferringTexts() {
		for _, column := range columns {
			without[table+"."+column] = true
		}
	}

	tables, err := s.Tables(t.Context())
	if err != nil || len(tables) < 20 {
		t.Fatalf("%v, %v", tables, err)
	}

	for _, table := range tables {
		columns, err := s.Columns(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}

		for column, kind := range columns {
			named := column == "id" || strings.HasSuffix(column, "_id") || strings.HasSuffix(column, "key")
			if kind == "text" && !named && !without[table+"."+column] {
				t.Errorf("%s.%s: let SweepOrphans read it (referrings), or say here that it refers to no contents", table, column)
			}
		}
	}
}

// meanwhile puts a content and stores a message that needs it, while the first content of a sweep is deleted.
type meanwhile struct {
	files
	arrives func()
}

func (m *meanwhile) DeleteIdle(ctx context.Context, digest string, since time.Time) (bool, error) {
	if m.arrives != nil {
		m.arrives()
		m.arrives = nil
	}
	return m.files.DeleteIdle(ctx, digest, since)
}

// TestSweepKeepsWhatArrivesMeanwhile: a content of a later page is needed again by a message that arrives after the rows were read.
func TestSweepKeepsWhatArrivesMeanwhile(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, store.Options{URL: url(t)})
			blobs := &meanwhile{files: openFiles(t)}
			digests := make([]string, 150)
			for i := range digests {
				digests[i] = blobs.put(fmt.Sprint("content ", i), time.Hour)
			}
			slices.Sort(digests)
			err := s.InTx(t.Context(), func(tx *store.Tx) error { return tx.Discard(t.Context(), digests...) })
			if err != nil {
				t.Fatal(err)
			}

			last := digests[149]
			blobs.arrives = func() {
				for i := range digests {
					if text := fmt.Sprint("content ", i); blobs.put(text, 0) != last {
						continue
					}
					if err := s.State().Put(t.Context(), "agent.files", "logo", []byte(last), time.Time{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, err := s.SweepBlobs(t.Context(), blobs, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := blobs.Stat(t.Context(), last); err != nil {
				t.Errorf("a content that a message needs is gone: %v", err)
			}
		})
	}
}
