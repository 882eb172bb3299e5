package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/disk"
	"inbox/internal/fault"
	"inbox/internal/telemetry"
)

var (
	// result: new, known, error
	puts = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_blob_puts_total", Help: "Contents put into the blob store by result.",
	}, []string{"result"})
	putBytes = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "inbox_blob_put_bytes", Help: "Size of contents put into the blob store.", Buckets: telemetry.Bytes,
	})
)

// DefaultMaxBytes bounds one content where Options do not say.
const DefaultMaxBytes = 64 << 20

// staleAfter is the age at which an unfinished file belongs to a process that died. Commands open the same directory
// while the server writes to it, so younger files stay.
const staleAfter = time.Hour

// Options of a file store; zero values take the defaults.
type Options struct {
	MaxBytes int64 // of one content; DefaultMaxBytes
	// Writes hears of bytes as they are about to be written; optional. It must not block.
	Writes func(bytes int64)
}

// Files is a Store in a directory: <dir>/ab/cd/<digest>, with unfinished files in <dir>/tmp.
type Files struct {
	dir      string
	maxBytes int64
	writes   func(bytes int64)
	gate     *disk.Gate // contents are put together and removed alone, whichever process does it
}

var _ Backend = (*Files)(nil)

// OpenFiles opens or makes the store in dir and removes what a crash left unfinished.
func OpenFiles(dir string, options Options) (*Files, error) {
	s := &Files{dir: dir, maxBytes: options.MaxBytes, writes: options.Writes}
	if s.writes == nil {
		s.writes = func(int64) {}
	}
	if s.maxBytes == 0 {
		s.maxBytes = DefaultMaxBytes
	}
	if err := os.MkdirAll(s.temporary(), 0o700); err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	if err := s.sweep(time.Now().Add(-staleAfter)); err != nil {
		return nil, fmt.Errorf("sweep blob store: %w", err)
	}

	gate, err := disk.OpenGate(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}

	s.gate = gate
	return s, nil
}

func (s *Files) temporary() string { return filepath.Join(s.dir, "tmp") }

func (s *Files) path(digest string) string {
	return filepath.Join(s.dir, digest[:2], digest[2:4], digest)
}

func (s *Files) sweep(before time.Time) error {
	entries, err := os.ReadDir(s.temporary())
	if err != nil {
		return err
	}

	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || info.ModTime().After(before) {
			continue
		}
		if err := os.Remove(filepath.Join(s.temporary(), entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	return nil
}

// Put implements Store: it writes to a temporary file, syncs it, renames it and syncs the directory.
func (s *Files) Put(ctx context.Context, from io.Reader) (digest string, size int64, err error) {
	digest, size, result, err := s.put(ctx, from)
	count(result, size, err)
	return digest, size, err
}

func (s *Files) put(ctx context.Context, from io.Reader) (digest string, size int64, result string, err error) {
	file, err := os.CreateTemp(s.temporary(), "put-*")
	if err != nil {
		return "", 0, "", unavailable("put blob", err)
	}
	defer discard(file)

	sum := sha256.New()
	if size, err = s.copy(ctx, file, sum, from); err != nil {
		return "", 0, "", err
	}

	digest = format(sum.Sum(nil))
	result, err = s.keep(file, digest)
	return digest, size, result, err
}

// PutBytes implements Store. Content that is there already costs no writing.
func (s *Files) PutBytes(ctx context.Context, content []byte) (digest string, err error) {
	if int64(len(content)) > s.maxBytes {
		return "", s.tooLarge()
	}

	sum := sha256.Sum256(content)
	digest = format(sum[:])
	result, err := s.putKnown(ctx, digest, content)
	count(result, int64(len(content)), err)
	if err != nil {
		return "", err
	}
	return digest, nil
}

func (s *Files) putKnown(ctx context.Context, digest string, content []byte) (result string, err error) {
	if err := ctx.Err(); err != nil {
		return "", unavailable("put blob", err)
	}
	if known, err := s.known(digest); known || err != nil {
		return "known", err
	}

	file, err := s.write(content)
	if err != nil {
		return "", err
	}
	defer discard(file)
	return s.keep(file, digest)
}

// write writes content to a temporary file, which the caller discards.
func (s *Files) write(content []byte) (*os.File, error) {
	file, err := os.CreateTemp(s.temporary(), "put-*")
	if err != nil {
		return nil, unavailable("put blob", err)
	}

	s.writes(int64(len(content)))
	if _, err := file.Write(content); err != nil {
		discard(file)
		return nil, unavailable("write blob", err)
	}
	return file, nil
}

// Stage implements Store.
func (s *Files) Stage(ctx context.Context, content []byte) (withdraw func() error, err error) {
	if int64(len(content)) > s.maxBytes {
		return nil, s.tooLarge()
	}

	sum := sha256.Sum256(content)
	withdraw, result, err := s.stage(ctx, format(sum[:]), content)
	count(result, int64(len(content)), err)
	return withdraw, err
}

func (s *Files) stage(ctx context.Context, digest string, content []byte) (withdraw func() error, result string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", unavailable("put blob", err)
	}
	if known, err := s.known(digest); known || err != nil {
		return nil, "known", err
	}

	file, err := s.write(content)
	if err != nil {
		return nil, "", err
	}
	defer discard(file)

	// A file system that does not keep the time exactly cannot show that another caller has put the content since.
	now := time.Now()
	if err := os.Chtimes(file.Name(), now, now); err != nil {
		return nil, "", unavailable("put blob", err)
	}
	mine, err := file.Stat()
	if err != nil {
		return nil, "", unavailable("put blob", err)
	}

	var created bool
	result, err = s.place(file, digest, func(rename func() error) error {
		return s.gate.Alone(func() error {
			if os.Chtimes(s.path(digest), now, now) == nil { // another caller was faster
				return nil
			}
			created = true
			return rename()
		})
	})
	switch {
	case err != nil:
		return nil, "", err
	case !created:
		return nil, "known", nil
	case !mine.ModTime().Equal(now):
		return nil, result, nil
	}
	return func() error { return s.withdraw(digest, mine) }, result, nil
}

// withdraw removes a file that is still as it was staged: each Put changes its time or replaces it.
func (s *Files) withdraw(digest string, staged fs.FileInfo) error {
	err := s.gate.Alone(func() error {
		found, err := os.Stat(s.path(digest))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !os.SameFile(found, staged) || !found.ModTime().Equal(staged.ModTime()):
			return nil
		}
		return os.Remove(s.path(digest))
	})
	if err != nil {
		return unavailable("withdraw blob", err)
	}
	return nil
}

// copy writes at most the limit to the file and to the sum.
func (s *Files) copy(ctx context.Context, file io.Writer, sum hash.Hash, from io.Reader) (int64, error) {
	source := &source{ctx: ctx, from: from}
	size, err := io.Copy(io.MultiWriter(announced{file, s.writes}, sum), io.LimitReader(source, s.maxBytes+1))
	switch {
	case source.err != nil:
		return 0, source.fault()
	case err != nil:
		return 0, unavailable("write blob", err)
	case size > s.maxBytes:
		return 0, s.tooLarge()
	}
	return size, nil
}

// announced tells of bytes before it writes them.
type announced struct {
	io.Writer
	writes func(bytes int64)
}

// Write writes.
func (a announced) Write(content []byte) (int, error) {
	a.writes(int64(len(content)))
	return a.Writer.Write(content)
}

func (s *Files) tooLarge() error {
	return fault.Newf(fault.TooLarge, "content is over %d bytes", s.maxBytes)
}

// keep makes the finished file the content of the digest.
func (s *Files) keep(file *os.File, digest string) (result string, err error) {
	if known, err := s.known(digest); known || err != nil {
		return "known", err
	}
	return s.place(file, digest, s.gate.Together)
}

// place makes the finished file the content of the digest, through the gate that it is given.
func (s *Files) place(file *os.File, digest string, through func(rename func() error) error) (result string, err error) {
	if err := file.Sync(); err != nil {
		return "", unavailable("sync blob", err)
	}
	if err := s.makeDirectories(digest); err != nil {
		return "", unavailable("make blob directory", err)
	}
	if err := through(func() error { return os.Rename(file.Name(), s.path(digest)) }); err != nil {
		return "", unavailable("keep blob", err)
	}
	if err := syncDirectory(filepath.Dir(s.path(digest))); err != nil {
		return "", unavailable("sync blob directory", err)
	}

	return "new", nil
}

// known reports whether the content is there, for good: the one who renamed it may not have synced the directory yet. Its time
// means that a caller is about to refer to it; see DeleteIdle.
func (s *Files) known(digest string) (bool, error) {
	now := time.Now()

	// The kernel finds the file first and sets its time afterwards; a removal in between would leave a time on nothing.
	touch := func() error { return os.Chtimes(s.path(digest), now, now) }
	if err := s.gate.Together(touch); err != nil {
		return false, nil //nolint:nilerr // whatever is wrong with the old file, writing a new one finds out
	}
	if err := syncDirectory(filepath.Dir(s.path(digest))); err != nil {
		return false, unavailable("sync blob directory", err)
	}
	return true, nil
}

func (s *Files) makeDirectories(digest string) error {
	inner := filepath.Dir(s.path(digest))
	if _, err := os.Stat(inner); err == nil {
		return nil
	}
	if err := os.MkdirAll(inner, 0o700); err != nil {
		return err
	}
	if err := syncDirectory(filepath.Dir(inner)); err != nil {
		return err
	}
	return syncDirectory(s.dir)
}

// Open implements Store.
func (s *Files) Open(_ context.Context, digest string) (io.ReadCloser, error) {
	if err := checkDigest(digest); err != nil {
		return nil, err
	}
	file, err := os.Open(s.path(digest))
	if err != nil {
		return nil, reading("open blob", err)
	}
	return file, nil
}

// Stat implements Store.
func (s *Files) Stat(_ context.Context, digest string) (int64, error) {
	if err := checkDigest(digest); err != nil {
		return 0, err
	}
	info, err := os.Stat(s.path(digest))
	if err != nil {
		return 0, reading("stat blob", err)
	}
	return info.Size(), nil
}

// Delete implements Store.
func (s *Files) Delete(_ context.Context, digest string) error {
	if err := checkDigest(digest); err != nil {
		return err
	}
	if err := os.Remove(s.path(digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailable("delete blob", err)
	}
	return nil
}

// DeleteIdle removes content that was not put since the time given, and reports whether it is gone: a caller that put it later may not
// have written down yet that it is needed. The caller makes sure that nothing refers to it. A caller that puts it meanwhile has it
// afterwards.
func (s *Files) DeleteIdle(_ context.Context, digest string, since time.Time) (gone bool, err error) {
	if err := checkDigest(digest); err != nil {
		return false, err
	}

	err = s.gate.Alone(func() error {
		info, err := os.Stat(s.path(digest))
		if err == nil && info.ModTime().After(since) {
			return nil
		}

		if err == nil {
			err = os.Remove(s.path(digest))
		}

		gone = err == nil || errors.Is(err, fs.ErrNotExist)
		if gone {
			return nil
		}
		return err
	})
	if err != nil {
		return false, unavailable("delete idle blob", err)
	}

	return gone, nil
}

// EachIdle returns the contents that were not put since the time given, in order of their digests, until visit returns an
// error, which is then its own. One directory is read at a time: how many contents there are does not matter.
func (s *Files) EachIdle(ctx context.Context, since time.Time, visit func(digest string) error) error {
	return s.eachContent(ctx, func(digest string, info fs.FileInfo) error {
		if info.ModTime().After(since) {
			return nil
		}
		return visit(digest)
	})
}

// Size returns how many contents there are, and their bytes. It reads all directories.
func (s *Files) Size(ctx context.Context) (count, bytes int64, err error) {
	err = s.eachContent(ctx, func(_ string, info fs.FileInfo) error {
		count, bytes = count+1, bytes+info.Size()
		return nil
	})
	return count, bytes, err
}

func (s *Files) eachContent(ctx context.Context, visit func(digest string, info fs.FileInfo) error) error {
	return s.eachEntry(ctx, s.dir, func(outer fs.DirEntry) error {
		if len(outer.Name()) != 2 || !outer.IsDir() {
			return nil // the gate, unfinished files
		}
		return s.eachEntry(ctx, filepath.Join(s.dir, outer.Name()), func(inner fs.DirEntry) error {
			return s.eachEntry(ctx, filepath.Join(s.dir, outer.Name(), inner.Name()), func(file fs.DirEntry) error {
				info, err := file.Info()
				if err != nil || !ValidDigest(file.Name()) {
					return nil //nolint:nilerr // it is gone meanwhile
				}
				return visit(file.Name(), info)
			})
		})
	})
}

func (s *Files) eachEntry(ctx context.Context, directory string, visit func(fs.DirEntry) error) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return unavailable("list blobs", err)
	}

	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return unavailable("list blobs", err)
		}
		if err := visit(entry); err != nil {
			return err
		}
	}
	return nil
}

// ID implements Backend.
func (s *Files) ID(context.Context) (string, error) {
	content, err := os.ReadFile(filepath.Join(s.dir, idName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", unavailable("read the id of the blob store", err)
	}
	return strings.TrimSpace(string(content[:min(len(content), IDBytes)])), nil
}

// SetID implements Backend.
func (s *Files) SetID(_ context.Context, id string) error {
	if err := disk.WritePrivate(filepath.Join(s.dir, idName), id+"\n"); err != nil {
		return unavailable("write the id of the blob store", err)
	}
	return nil
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// discard closes the temporary file and removes what was not renamed.
func discard(file *os.File) {
	_ = file.Close()
	_ = os.Remove(file.Name())
}

func count(result string, size int64, err error) {
	if err != nil {
		puts.WithLabelValues("error").Inc()
		return
	}
	puts.WithLabelValues(result).Inc()
	putBytes.Observe(float64(size))
}
