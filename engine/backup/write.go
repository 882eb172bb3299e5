package backup

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"inbox/engine/store"
	"inbox/engine/store/database"
	"inbox/internal/blob"
	"inbox/internal/disk"
	"inbox/internal/fault"
)

// Source is one domain of a server.
type Source struct {
	Domain string
	Store  *store.Store
	Blobs  blob.Backend
}

// SmallFile is a file that is copied beside the rows.
type SmallFile struct {
	Name    string // ConfigFile, KeyFile, TokenFile
	Content []byte
}

// Progress is how far something is that takes long.
type Progress struct {
	Step        string // what is done, in words
	Done, Total int64  // rows or contents; 0 of 0 = that is not known
}

// Options of a backup. All but Keep, Proof and Progress are required; Files may be few.
type Options struct {
	Directory   string
	Program     string // version of this program
	Sources     []Source
	Files       []SmallFile
	Keys        bool
	Elsewhere   []string
	Environment []string
	Keep        int                             // complete backups that stay, this one among them; 0 = all
	Proof       func(key []byte) (Proof, error) // checks with the secret key what is sealed; nil = that is not checked
	Progress    func(Progress)
}

// Report says what a backup did.
type Report struct {
	*Manifest
	NewContents int64    `json:"new_contents"`      // that no earlier backup of the directory had
	NewBytes    int64    `json:"new_content_bytes"` // of them
	Removed     []string `json:"removed,omitempty"` // backups that --keep removed
	Cleaned     []string `json:"cleaned,omitempty"` // what a backup left that did not end
	FreedBytes  int64    `json:"freed_content_bytes,omitempty"`

	Problems []string `json:"problems,omitempty"` // for which Verify refuses this backup, at most some of them
}

const (
	// holdFor is how long contents are kept on the server after the last sign of the backup.
	holdFor   = 10 * time.Minute
	holdAgain = time.Minute
	// blobWorkers copy contents at once: those of a bucket wait for it most of the time.
	blobWorkers = 8
	maxMissing  = 20
	// maxContent bounds a content in bytes; the server that keeps it has its own bound.
	maxContent = 1 << 40
)

// Write writes a backup into a directory, beside those that are there. The server may run meanwhile: what it accepts after the moment of
// the backup is not in it.
func Write(ctx context.Context, o Options) (report Report, err error) {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if err := os.MkdirAll(filepath.Join(o.Directory, snapshotsDirectory), 0o700); err != nil {
		return report, fmt.Errorf("%s cannot be made: %w; name a directory that this user may write to", o.Directory, disk.Cause(err))
	}
	lock, err := disk.Take(o.Directory)
	switch {
	case errors.Is(err, disk.ErrTaken):
		return report, fmt.Errorf("another backup is at work in %s: wait for it, or name another directory", o.Directory)
	case err != nil:
		return report, fmt.Errorf("%s: %w", o.Directory, disk.Cause(err))
	}
	defer func() { err = errors.Join(err, lock.Leave()) }()

	if report.Cleaned, err = clean(o.Directory); err != nil {
		return report, err
	}
	kept, err := blob.OpenFiles(filepath.Join(o.Directory, blobsDirectory), blob.Options{MaxBytes: maxContent})
	if err != nil {
		return report, err
	}

	w := &writing{Options: o, kept: kept, report: &report, holder: uuid.NewString()}
	if err := w.run(ctx); err != nil {
		return report, err
	}

	// Rows are copied as the database returns them, so only reading the copy shows that they are what a server can read.
	found, err := Verify(ctx, o.Directory, report.Name, o.Proof, o.Progress)
	if err != nil {
		return report, fmt.Errorf("the backup %s cannot be checked: %w", report.Name, err)
	}
	report.Problems = found.Problems
	if found.Found > found.missing {
		return report, nil // the earlier backups stay: they may be what is needed now
	}
	report.Removed, report.FreedBytes, err = prune(ctx, o.Directory, kept, o.Keep, len(report.Cleaned) > 0)
	return report, err
}

// clean removes backups that did not end.
func clean(directory string) ([]string, error) {
	_, unfinished, err := Names(directory)
	for _, name := range unfinished {
		err = errors.Join(err, os.RemoveAll(filepath.Join(directory, snapshotsDirectory, name)))
	}
	return unfinished, err
}

// writing is one backup that is being written.
type writing struct {
	Options
	kept   *blob.Files
	report *Report
	holder string
	root   string // of this backup
}

func (w *writing) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := w.hold(ctx); err != nil {
		return err
	}
	holding := make(chan struct{})
	go func() { defer close(holding); w.keepHolding(ctx, cancel) }()
	defer func() { // after a failure the documents end by themselves
		cancel(nil)
		<-holding
		err = errors.Join(err, w.release(context.WithoutCancel(ctx)))
	}()

	// All views are opened before anything is copied, so that the domains are of one moment but for milliseconds.
	views := make([]*database.Snapshot, len(w.Sources))
	defer func() {
		for _, view := range views {
			if view != nil {
				err = errors.Join(err, view.Close())
			}
		}
	}()
	for i, source := range w.Sources {
		if views[i], err = source.Store.Snapshot(ctx); err != nil {
			return fmt.Errorf("read the database of %s: %w", source.Domain, err)
		}
	}

	manifest := &Manifest{
		Format: Format, Program: w.Program, Moment: views[0].At.UTC(), Keys: w.Keys, Elsewhere: w.Elsewhere, Environment: w.Environment,
	}
	w.report.Manifest = manifest
	if manifest.Name, err = w.makeRoot(manifest.Moment); err != nil {
		return err
	}

	spools := make([]*refs, len(views))
	for i, view := range views {
		manifest.Domains = append(manifest.Domains, Domain{Domain: w.Sources[i].Domain, Engine: view.Engine, Moment: view.At.UTC(), SchemaVersion: view.Version})
		if spools[i], err = w.writeRows(ctx, i, view, &manifest.Domains[i]); err != nil {
			return err
		}
		if err := view.Close(); err != nil {
			return err
		}
		views[i] = nil
	}

	for i := range w.Sources {
		if err := w.copyContents(ctx, i, spools[i], &manifest.Domains[i]); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// hold keeps the servers from deleting contents.
func (w *writing) hold(ctx context.Context) error {
	for _, source := range w.Sources {
		if err := source.Store.HoldBlobs(ctx, w.holder, time.Now().Add(holdFor)); err != nil {
			return fmt.Errorf("tell the server of %s that a backup runs: %w", source.Domain, err)
		}
	}
	return nil
}

// keepHolding goes on with that until ctx ends. When the end could not be moved in time the backup fails: contents may be gone.
func (w *writing) keepHolding(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker, last := time.NewTicker(holdAgain), time.Now()
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch err := w.hold(ctx); {
		case err == nil:
			last = time.Now()
		case time.Since(last) > holdFor-2*holdAgain && ctx.Err() == nil:
			cancel(err)
			return
		}
	}
}

func (w *writing) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	for _, source := range w.Sources {
		err = errors.Join(err, source.Store.ReleaseBlobs(ctx, w.holder))
	}
	return err
}

// makeRoot makes the directory of this backup. Its name is the moment, or a later one where there are backups of that moment already: the
// newest has the last name, whatever was removed before and whatever the clock said.
func (w *writing) makeRoot(moment time.Time) (name string, err error) {
	complete, unfinished, err := Names(w.Directory)
	if err != nil {
		return "", err
	}
	for {
		name = moment.Format(nameLayout)
		for _, other := range slices.Concat(complete, unfinished) {
			if at, err := time.Parse(nameLayout, other); err == nil && name <= other {
				moment = at.Add(time.Millisecond)
				name = moment.Format(nameLayout)
			}
		}
		w.root = filepath.Join(w.Directory, snapshotsDirectory, name)
		if err := os.Mkdir(w.root, 0o700); !errors.Is(err, fs.ErrExist) {
			return name, err
		}
		moment = moment.Add(time.Millisecond)
	}
}

// refs are the contents that rows of one domain refer to.
type refs struct {
	needed store.Digests // perhaps some more
	certain
}

// certain is a file with the digests that must be there, 32 bytes each; some stand there several times.
type certain struct {
	file *os.File
	out  *bufio.Writer
}

func (c *certain) add(digest string) error {
	raw, err := hex.DecodeString(digest)
	if err != nil || len(raw)*2 != blob.DigestBytes {
		return nil //nolint:nilerr // it is none
	}
	_, err = c.out.Write(raw)
	return err
}

// contentRef finds contents in the JSON of messages and answers, also where that is a text in another JSON.
var contentRef = regexp.MustCompile(`content_addressed\\*"[^{}]*?digest\\*":\\*"([0-9a-f]{64})`)

// digestColumns are where a digest stands alone.
var digestColumns = map[string]bool{"run_results": true, "agent_uploads": true}

// eachRef calls visit with the digests of contents that a row refers to for certain.
func eachRef(table database.Table, values []any, visit func(digest string) error) error {
	inBlob, digest := false, ""
	for i, column := range table.Columns {
		text, _ := values[i].(string)
		switch {
		case column.Name == "digest":
			digest = text
		case table.Name == "originals" && column.Name == "encoding":
			inBlob = text == "blob"
		case strings.Contains(text, "content_addressed"):
			for _, found := range contentRef.FindAllStringSubmatch(text, -1) {
				if err := visit(found[1]); err != nil {
					return err
				}
			}
		}
	}
	if inBlob || digestColumns[table.Name] && digest != "" {
		return visit(digest)
	}
	return nil
}

func (r *refs) addRow(table database.Table, values []any) error {
	r.needed.AddRow(table, values)
	return eachRef(table, values, func(digest string) error {
		r.needed.Add(digest)
		return r.add(digest)
	})
}

// writeRows writes the tables of a domain and collects what they refer to.
func (w *writing) writeRows(ctx context.Context, number int, view *database.Snapshot, domain *Domain) (_ *refs, err error) {
	file, err := os.CreateTemp(w.root, "refs-*.tmp")
	if err != nil {
		return nil, err
	}
	found := &refs{store.NewDigests(), certain{file, bufio.NewWriter(file)}}

	for _, table := range view.Tables {
		relative := filepath.Join(domainsDirectory, strconv.Itoa(number), table.Name+".jsonl.gz")
		written, err := w.writeTable(ctx, view, table, relative, found)
		if err != nil {
			return nil, fmt.Errorf("copy the table %s: %w", table.Name, err)
		}
		domain.Tables = append(domain.Tables, written)
	}
	return found, found.out.Flush()
}

// progressRows is after how many rows progress is told.
const progressRows = 5000

func (w *writing) writeTable(ctx context.Context, view *database.Snapshot, table database.Table, relative string, found *refs) (written Table, err error) {
	out, err := createLines(filepath.Join(w.root, relative))
	if err != nil {
		return written, err
	}

	written.Table = table.Name
	for _, column := range table.Columns {
		written.Columns = append(written.Columns, column.Name)
		if column.Integer {
			written.Numbers = append(written.Numbers, column.Name)
		}
	}
	encoder := newEncoder(out.buffered)
	err = view.Each(ctx, table, func(values []any) error {
		if written.Rows%progressRows == 0 {
			w.Progress(Progress{"rows of " + table.Name, written.Rows, view.Rows[table.Name]})
		}
		written.Rows++
		if err := found.addRow(table, values); err != nil {
			return err
		}
		return writeRow(encoder, values)
	})
	described, failed := out.finish(relative)
	written.File = described
	return written, errors.Join(err, failed)
}

// copyContents copies the contents that rows refer to and that the directory has not yet, and makes sure that all are there.
func (w *writing) copyContents(ctx context.Context, number int, found *refs, domain *Domain) (err error) {
	relative := filepath.Join(domainsDirectory, strconv.Itoa(number), blobList)
	list, err := createLines(filepath.Join(w.root, relative))
	if err != nil {
		return err
	}

	var lock sync.Mutex
	group, copying := errgroup.WithContext(ctx)
	group.SetLimit(blobWorkers)
	source := w.Sources[number].Blobs
	// Contents that come from now on belong to messages after the moment, or to repeats of those before.
	listed := source.EachIdle(copying, time.Now().Add(time.Hour), func(digest string) error {
		if !found.needed.Has(digest) {
			return nil
		}
		group.Go(func() error {
			size, fresh, err := w.copyContent(copying, source, digest)
			if err != nil || size < 0 {
				return err
			}
			lock.Lock()
			defer lock.Unlock()
			domain.ContentCount++
			domain.ContentBytes += size
			if fresh {
				w.report.NewContents++
				w.report.NewBytes += size
			}
			w.Progress(Progress{"files", domain.ContentCount, 0})
			_, err = fmt.Fprintf(list.buffered, "%s %d\n", digest, size)
			return err
		})
		return copying.Err()
	})
	failed := group.Wait()
	domain.Contents, err = list.finish(relative)
	if err := errors.Join(failed, listed, err); err != nil {
		return fmt.Errorf("copy the files of %s: %w", domain.Domain, err)
	}
	return w.checkContents(ctx, found, domain)
}

// copyContent copies one content; a size of -1 is one that is gone meanwhile.
func (w *writing) copyContent(ctx context.Context, source blob.Store, digest string) (size int64, fresh bool, err error) {
	if size, err := w.kept.Stat(ctx, digest); err == nil {
		return size, false, nil
	}
	content, err := source.Open(ctx, digest)
	if fault.Is(err, fault.NotFound) {
		return -1, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	put, size, err := w.kept.Put(ctx, content)
	if err := errors.Join(err, content.Close()); err != nil {
		return 0, false, err
	}
	if put != digest {
		return 0, false, fmt.Errorf("the file %s has other bytes on the server than when it was stored: they are damaged", digest)
	}
	return size, true, nil
}

func (w *writing) checkContents(ctx context.Context, found *refs, domain *Domain) (err error) {
	defer func() { err = errors.Join(err, found.file.Close(), os.Remove(found.file.Name())) }()
	if _, err := found.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in, raw, told := bufio.NewReader(found.file), make([]byte, blob.DigestBytes/2), map[string]bool{}
	for {
		switch _, err := io.ReadFull(in, raw); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		digest := hex.EncodeToString(raw)
		if _, err := w.kept.Stat(ctx, digest); err == nil || told[digest] {
			continue
		}
		domain.MissingCount++
		if len(told) < maxMissing {
			told[digest] = true
			domain.Missing = append(domain.Missing, digest)
		}
	}
}

// finish writes the small files and, when all else is on disk, the manifest.
func (w *writing) finish(ctx context.Context) error {
	manifest := w.report.Manifest
	for _, file := range w.Files {
		relative := filepath.Join(filesDirectory, file.Name)
		written, err := writeWhole(filepath.Join(w.root, relative), relative, file.Content)
		if err != nil {
			return err
		}
		manifest.Files = append(manifest.Files, written)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	manifest.Ended = time.Now().UTC()
	content, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return err
	}
	if err := syncDirectories(w.root); err != nil {
		return err
	}
	if err := syncDirectory(filepath.Dir(w.root)); err != nil {
		return err
	}
	if err := disk.WritePrivate(filepath.Join(w.root, manifestFile), string(content)+"\n"); err != nil {
		return err
	}
	return syncDirectory(w.root)
}

// prune removes the oldest backups beyond keep, and the contents that none of the others refers to.
func prune(ctx context.Context, directory string, kept *blob.Files, keep int, cleaned bool) (removed []string, freed int64, err error) {
	complete, _, err := Names(directory)
	if err != nil {
		return nil, 0, err
	}
	if keep > 0 && len(complete) > keep {
		removed, complete = complete[:len(complete)-keep], complete[len(complete)-keep:]
	}
	if len(removed) == 0 && !cleaned {
		return nil, 0, nil
	}

	for _, name := range removed {
		root := filepath.Join(directory, snapshotsDirectory, name)
		// Without its manifest it is no backup any more, whatever of it is still there.
		if err := errors.Join(os.Remove(filepath.Join(root, manifestFile)), syncDirectory(root), os.RemoveAll(root)); err != nil {
			return removed, 0, err
		}
	}

	needed := store.NewDigests()
	for _, name := range complete {
		manifest, err := Read(directory, name)
		if err != nil {
			return removed, 0, err
		}
		for i := range manifest.Domains {
			err := eachContent(path(directory, name, manifest.Domains[i].Contents), func(digest string, _ int64) error {
				needed.Add(digest)
				return nil
			})
			if err != nil {
				return removed, 0, err
			}
		}
	}

	err = kept.EachIdle(ctx, time.Now().Add(time.Hour), func(digest string) error {
		if needed.Has(digest) {
			return nil
		}
		size, err := kept.Stat(ctx, digest)
		if err == nil {
			err = kept.Delete(ctx, digest)
			freed += size
		}
		return err
	})
	return removed, freed, err
}

// eachContent reads a list of contents.
func eachContent(path string, visit func(digest string, size int64) error) error {
	in, err := openLines(path)
	if err != nil {
		return err
	}
	scanner := bufio.NewScanner(in)
	for scanner.Scan() && err == nil {
		digest, rest, _ := strings.Cut(scanner.Text(), " ")
		size, failed := strconv.ParseInt(rest, 10, 64)
		if failed != nil || !blob.ValidDigest(digest) {
			err = fmt.Errorf("the list of files is damaged: %q", scanner.Text())
			break
		}
		err = visit(digest, size)
	}
	return errors.Join(err, scanner.Err(), in.Close())
}
