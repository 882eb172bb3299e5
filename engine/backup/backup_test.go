package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"inbox/engine/backup"
	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/blob"
	"inbox/internal/blob/blobtest"
	"inbox/internal/children"
	"inbox/normalized"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(children.Starter)) }

// place is a database with its files.
type place struct {
	store.Options
	blobs blob.Backend
}

func newPlace(t *testing.T, kind string) place {
	t.Helper()
	p := place{Options: store.Options{URL: "sqlite", DataDir: t.TempDir()}}
	if kind == "postgres" {
		p.URL = storetest.Postgres(t)
	}
	blobs, err := blob.OpenFiles(filepath.Join(p.DataDir, "blobs"), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.blobs = blobs
	return p
}

// inBucket is a place whose files are in a bucket below a prefix.
func (p place) inBucket(t *testing.T, server *blobtest.Server, prefix string) place {
	t.Helper()
	blobs, err := blob.OpenS3(blob.S3Options{
		Endpoint: server.Endpoint, Plain: true, Bucket: blobtest.Bucket, Prefix: prefix, AccessKey: blobtest.AccessKey, SecretKey: blobtest.SecretKey,
		MaxBytes: blobtest.Limit, Spool: t.TempDir(), Dial: (&net.Dialer{}).DialContext,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.blobs = blobs
	return p
}

func (p place) open(t *testing.T) *store.Store {
	t.Helper()
	opened, err := store.Open(t.Context(), p.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return opened
}

func (p place) target() backup.Target {
	return backup.Target{Domain: "a.test", Store: p.Options, Name: p.URL, DataDir: p.DataDir, Blobs: func() (blob.Backend, error) { return p.blobs, nil }}
}

// fill stores turns with an original each, of which one is a file, and a delivery that was not made.
func (p place) fill(t *testing.T, s *store.Store, turns int) (digest string) {
	t.Helper()
	ctx := t.Context()
	digest, err := p.blobs.PutBytes(ctx, []byte("a long original "+uuid.NewString()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range turns {
		id := uuid.Must(uuid.NewV7()).String()
		turn := exchange.TurnRecord{
			ID: id, Agent: "echo", Principal: "p", ThreadID: id, State: exchange.StateAccepted, AcceptedAt: time.Now(), Channel: "email",
			Message: normalized.Message{
				ID: id, ThreadID: id, Recipient: "@echo@a.test", ReceivedVia: normalized.ViaEmail,
				Parts: []normalized.Part{normalized.Text("hello <&> \u2028 \"quoted\" \\ ü " + id)},
			},
		}
		original := pipeline.Original{Digest: digest, MediaType: "message/rfc822"}
		if i > 0 {
			original = pipeline.Original{Digest: strings.Repeat(fmt.Sprintf("%02x", i%256), 32), MediaType: "message/rfc822", Body: []byte("binary \x00\xff")}
		}
		reply := exchange.Reply{ID: exchange.DerivedID(id, "reply"), TurnID: id, Agent: "echo", Message: turn.Message, Channel: "email", CreatedAt: time.Now()}
		err := s.InTx(ctx, func(tx *store.Tx) error {
			if _, _, err := tx.InsertTurn(ctx, turn, original); err != nil {
				return err
			}
			if err := tx.InsertReply(ctx, reply, reply.ID+"@a.test"); err != nil {
				return err
			}
			return tx.InsertDelivery(ctx, delivery.Record{
				ID: uuid.Must(uuid.NewV7()).String(), TurnID: id, ReplyID: reply.ID, Agent: "echo", Channel: "email", NativeID: reply.ID + "@a.test",
				Key: "b.test", Address: "@someone@b.test", State: delivery.StatePending, CreatedAt: time.Now(), UpdatedAt: time.Now(),
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.State().Put(ctx, "database", "files", []byte("files-id"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	return digest
}

func (p place) write(t *testing.T, s *store.Store, directory string, keep int) backup.Report {
	t.Helper()
	report, err := backup.Write(t.Context(), backup.Options{
		Directory: directory, Program: "test", Keep: keep, Sources: []backup.Source{{Domain: "a.test", Store: s, Blobs: p.blobs}},
		Files: []backup.SmallFile{{Name: backup.ConfigFile, Content: []byte("domain = \"a.test\"\n")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func verify(t *testing.T, directory string) *backup.Verified {
	t.Helper()
	found, err := backup.Verify(t.Context(), directory, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// everyRow reads all rows of a database as texts, by table.
func everyRow(t *testing.T, s *store.Store) map[string]map[string]bool {
	t.Helper()
	view, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = view.Close() }()
	rows := map[string]map[string]bool{}
	for _, table := range view.Tables {
		rows[table.Name] = map[string]bool{}
		err := view.Each(t.Context(), table, func(values []any) error {
			rows[table.Name][fmt.Sprintf("%q", values)] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// TestRestoredRowsAreThose: every row of every table, and every file, is in the restored database as it was, whichever the two databases
// are and whether files are in a directory or a bucket; what was under way is listed.
func TestRestoredRowsAreThose(t *testing.T) {
	const turns = 70 // more than one statement of a restore takes, and no multiple
	server := blobtest.StartServer(t)
	for _, c := range []struct {
		from, to           string
		fromFiles, toFiles string // prefix in the bucket; empty = a directory
	}{
		{"sqlite", "sqlite", "", ""}, {"sqlite", "postgres", "from-sqlite", ""}, {"postgres", "sqlite", "", "to-sqlite"}, {"postgres", "postgres", "from-postgres", "to-postgres"},
	} {
		t.Run(c.from+" to "+c.to, func(t *testing.T) {
			from, to, directory := newPlace(t, c.from), newPlace(t, c.to), t.TempDir()
			if c.fromFiles != "" {
				from = from.inBucket(t, server, c.fromFiles)
			}
			if c.toFiles != "" {
				to = to.inBucket(t, server, c.toFiles)
			}
			source := from.open(t)
			digest := from.fill(t, source, turns)
			report := from.write(t, source, directory, 0)
			if report.NewContents != 1 || report.Domains[0].MissingCount != 0 {
				t.Fatalf("%d contents, missing %v", report.NewContents, report.Domains[0].Missing)
			}
			if found := verify(t, directory); !found.Intact() || found.Contents != 1 || found.Rows < 100 {
				t.Fatalf("%+v", found.Problems)
			}

			manifest, err := backup.Read(directory, "")
			if err != nil {
				t.Fatal(err)
			}
			restored, err := backup.Restore(t.Context(), backup.RestoreOptions{Directory: directory, Manifest: manifest, Targets: []backup.Target{to.target()}, Hold: []string{"email"}})
			if err != nil || restored[0].Turns != turns || restored[0].Deliveries != turns || restored[0].Held != turns {
				t.Fatalf("%+v, %v", restored, err)
			}

			want, got := everyRow(t, source), everyRow(t, to.open(t))
			delete(want, "deliveries")   // they are held
			delete(want, "events")       // which is written there
			delete(want, "search_state") // the index is written again
			for table, rows := range want {
				for row := range rows {
					if !got[table][row] && !strings.Contains(row, "blobs.held") {
						t.Errorf("%s has not the row %s", table, row)
					}
				}
			}
			if len(got["deliveries"]) != turns {
				t.Errorf("%d deliveries", len(got["deliveries"]))
			}
			for row := range got["deliveries"] {
				if !strings.Contains(row, `"cancelled"`) {
					t.Errorf("not held: %s", row)
				}
			}
			if size, err := to.blobs.Stat(t.Context(), digest); err != nil || size == 0 {
				t.Errorf("the file is not there: %v", err)
			}
			if id, err := to.blobs.ID(t.Context()); err != nil || id != "files-id" {
				t.Errorf("the place of the files is %q, %v", id, err)
			}

			listed := 0
			if _, err := backup.ReadReport(to.DataDir, func(backup.Uncertain) error { listed++; return nil }); err != nil || listed != 2*turns {
				t.Errorf("%d are listed, %v", listed, err)
			}
			again := backup.RestoreOptions{Directory: directory, Manifest: manifest, Targets: []backup.Target{to.target()}}
			if _, err := backup.Restore(t.Context(), again); err == nil || !strings.Contains(err.Error(), "is in use") {
				t.Errorf("a second restore: %v", err)
			}
		})
	}
}

// TestBackupsShareFiles: a second backup copies new files alone, and with the last backup that has one a file goes.
func TestBackupsShareFiles(t *testing.T) {
	p, directory := newPlace(t, "sqlite"), t.TempDir()
	s := p.open(t)
	first := p.fill(t, s, 1)
	if report := p.write(t, s, directory, 0); report.NewContents != 1 {
		t.Fatalf("%+v", report)
	}
	second := p.fill(t, s, 1)
	if report := p.write(t, s, directory, 0); report.NewContents != 1 || report.Domains[0].ContentCount != 2 {
		t.Fatalf("%+v", report)
	}

	kept, err := blob.OpenFiles(filepath.Join(directory, "blobs"), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if report := p.write(t, s, directory, 1); len(report.Removed) != 2 {
		t.Fatalf("%v", report.Removed)
	}
	for _, digest := range []string{first, second} {
		if _, err := kept.Stat(t.Context(), digest); err != nil {
			t.Errorf("a file that a backup needs is gone: %v", err)
		}
	}
	if found := verify(t, directory); !found.Intact() {
		t.Errorf("%v", found.Problems)
	}

	other := newPlace(t, "sqlite")
	opened := other.open(t)
	third := other.fill(t, opened, 1)
	if report := other.write(t, opened, directory, 1); len(report.Removed) != 1 || report.FreedBytes == 0 {
		t.Fatalf("%+v", report)
	}
	if _, err := kept.Stat(t.Context(), first); err == nil {
		t.Error("a file that no backup needs stays")
	}
	if _, err := kept.Stat(t.Context(), third); err != nil {
		t.Error(err)
	}
}

// TestUnfinishedIsNone: a backup that broke off is none, and the next one removes it.
func TestUnfinishedIsNone(t *testing.T) {
	p, directory := newPlace(t, "sqlite"), t.TempDir()
	s := p.open(t)
	p.fill(t, s, 3)

	ctx, cancel := context.WithCancelCause(t.Context())
	died := errors.New("died")
	_, err := backup.Write(ctx, backup.Options{
		Directory: directory, Sources: []backup.Source{{Domain: "a.test", Store: s, Blobs: p.blobs}},
		Progress: func(p backup.Progress) {
			if p.Step == "files" {
				cancel(died)
			}
		},
	})
	if err == nil {
		t.Fatal("the backup did not break off")
	}
	if _, err := backup.Read(directory, ""); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("it is taken for a backup: %v", err)
	}
	if report := p.write(t, s, directory, 0); len(report.Cleaned) != 1 {
		t.Errorf("cleaned %v", report.Cleaned)
	}
	if found := verify(t, directory); !found.Intact() {
		t.Errorf("%v", found.Problems)
	}
}

// TestDamageIsFound: whatever is changed or missing in a backup is reported, and no restore begins with it.
func TestDamageIsFound(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, root, directory, digest string){
		"a byte of a table": func(t *testing.T, root, _, _ string) {
			change(t, filepath.Join(root, "domains", "0", "turns.jsonl.gz"), func(content []byte) []byte { content[len(content)/2] ^= 1; return content })
		},
		"a table is missing": func(t *testing.T, root, _, _ string) {
			remove(t, filepath.Join(root, "domains", "0", "replies.jsonl.gz"))
		},
		"a table is short": func(t *testing.T, root, _, _ string) {
			change(t, filepath.Join(root, "domains", "0", "turns.jsonl.gz"), func(content []byte) []byte { return content[:len(content)-9] })
		},
		"the configuration": func(t *testing.T, root, _, _ string) {
			change(t, filepath.Join(root, "files", "inbox.toml"), func(content []byte) []byte { return append(content, '#') })
		},
		"the manifest names a file elsewhere": func(t *testing.T, root, _, _ string) {
			change(t, filepath.Join(root, "manifest.json"), func(content []byte) []byte {
				return []byte(strings.Replace(string(content), "files/inbox.toml", "../../../etc/passwd", 1))
			})
		},
		"a file is missing": func(t *testing.T, _, directory, digest string) {
			remove(t, filepath.Join(directory, "blobs", digest[:2], digest[2:4], digest))
		},
		"a file has other bytes": func(t *testing.T, _, directory, digest string) {
			change(t, filepath.Join(directory, "blobs", digest[:2], digest[2:4], digest), func(content []byte) []byte { content[0] ^= 1; return content })
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, directory := newPlace(t, "sqlite"), t.TempDir()
			s := p.open(t)
			digest := p.fill(t, s, 3)
			report := p.write(t, s, directory, 0)
			damage(t, filepath.Join(directory, "snapshots", report.Name), directory, digest)

			found, err := backup.Verify(t.Context(), directory, "", nil, nil)
			if err == nil && found.Intact() {
				t.Fatal("the damage is not found")
			}
			manifest, err := backup.Read(directory, "")
			if err != nil {
				return // no restore begins
			}
			to := newPlace(t, "sqlite")
			if _, err := backup.Restore(t.Context(), backup.RestoreOptions{Directory: directory, Manifest: manifest, Targets: []backup.Target{to.target()}}); err == nil {
				t.Error("it is restored all the same")
			}
		})
	}
}

func change(t *testing.T, path string, by func([]byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, by(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// TestUnfinishedRestore: a restore that broke off leaves marks, in the directory and in the database, and the next one begins anew.
func TestUnfinishedRestore(t *testing.T) {
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			from, to, directory := newPlace(t, "sqlite"), newPlace(t, kind), t.TempDir()
			source := from.open(t)
			from.fill(t, source, 10)
			from.write(t, source, directory, 0)
			manifest, err := backup.Read(directory, "")
			if err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			options := backup.RestoreOptions{Directory: directory, Manifest: manifest, Targets: []backup.Target{to.target()}}
			options.Progress = func(p backup.Progress) {
				if p.Step == "rows of turns" {
					cancel()
				}
			}
			if _, err := backup.Restore(ctx, options); err == nil {
				t.Fatal("the restore did not break off")
			}
			if _, err := os.Stat(filepath.Join(to.DataDir, store.UnfinishedFile)); err != nil {
				t.Errorf("the directory does not say so: %v", err)
			}
			if found, err := store.Look(t.Context(), to.Options); err != nil || found.Marks.Unfinished == "" {
				t.Errorf("the database does not say so: %+v, %v", found, err)
			}

			options.Progress = nil
			if restored, err := backup.Restore(t.Context(), options); err != nil || restored[0].Turns != 10 {
				t.Fatalf("%+v, %v", restored, err)
			}
			if _, err := os.Stat(filepath.Join(to.DataDir, store.UnfinishedFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the mark stays: %v", err)
			}
			if found, err := store.Look(t.Context(), to.Options); err != nil || found.Marks.Unfinished != "" {
				t.Errorf("the mark stays: %+v, %v", found, err)
			}
		})
	}
}

// TestFilesAreHeld: while a backup runs no sweep deletes a file, and afterwards it does.
func TestFilesAreHeld(t *testing.T) {
	p := newPlace(t, "sqlite")
	s := p.open(t)
	orphan, err := p.blobs.PutBytes(t.Context(), []byte("needed by nothing"))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		do   func() error
		want int
	}{
		{func() error { return s.HoldBlobs(t.Context(), "a backup", time.Now().Add(time.Minute)) }, 0},
		{func() error { return s.ReleaseBlobs(t.Context(), "a backup") }, 1},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if deleted, err := s.SweepOrphans(t.Context(), p.blobs, -time.Hour); err != nil || deleted != step.want {
			t.Errorf("%d deleted, %v; want %d", deleted, err, step.want)
		}
	}
	if _, err := p.blobs.Stat(t.Context(), orphan); err == nil {
		t.Error("the file stays")
	}
}

// TestMove: a database is moved with all rows, is marked, and a move that broke off goes on at any of its steps.
func TestMove(t *testing.T) {
	from, to := newPlace(t, "sqlite"), newPlace(t, "postgres")
	source := from.open(t)
	from.fill(t, source, 12)
	options := backup.MoveOptions{
		From: []backup.MoveSource{{Domain: "a.test", Store: source, Name: "here"}}, Targets: []backup.Target{to.target()},
	}

	ctx, cancel := context.WithCancel(t.Context())
	broken := options
	broken.Progress = func(backup.Progress) { cancel() }
	if _, err := backup.Move(ctx, broken); err == nil {
		t.Fatal("the move did not break off")
	}
	if marks, err := source.Marks(t.Context()); err != nil || marks.Moved != "" {
		t.Fatalf("it is marked before it was copied: %+v, %v", marks, err)
	}

	want := everyRow(t, source)
	for try, before := range []bool{false, true} {
		moved, err := backup.Move(t.Context(), options)
		if err != nil || moved[0].Before != before {
			t.Fatalf("try %d: %+v, %v", try, moved, err)
		}
	}
	got := everyRow(t, to.open(t))
	delete(want, "search_state") // the index is written again
	for table, rows := range want {
		for row := range rows {
			if !got[table][row] {
				t.Errorf("%s has not the row %s", table, row)
			}
		}
	}
	if marks, err := source.Marks(t.Context()); err != nil || marks.Moved != to.URL {
		t.Errorf("%+v, %v", marks, err)
	}

	elsewhere := newPlace(t, "postgres")
	options.Targets = []backup.Target{elsewhere.target()}
	if _, err := backup.Move(t.Context(), options); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("it is moved twice: %v", err)
	}
}

// FuzzRows: whatever stands in the file of a table, reading it ends with rows or an error.
func FuzzRows(f *testing.F) {
	f.Add([]byte("[\"a\",1]\n[null,2]\n"))
	f.Add([]byte("[{\"base64\":\"AAE=\"},9223372036854775807]"))
	f.Add([]byte("[[[[[[[[\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		backup.ReadRows(strings.NewReader(string(content)), func(values []any) {
			if len(values) != 2 {
				t.Fatalf("%d values", len(values))
			}
			if _, is := values[1].(int64); !is && values[1] != nil {
				t.Fatalf("%T in a column of numbers", values[1])
			}
		})
	})
}
