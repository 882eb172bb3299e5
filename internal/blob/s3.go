package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/minio/minio-go/v7"

	"inbox/internal/fault"
)

// Styles of addresses: the bucket is in the path or in the host name.
const (
	StylePath = "path"
	StyleHost = "host"
)

// S3Options say where a bucket is; Endpoint and Bucket are required.
type S3Options struct {
	Endpoint string // host or host:port
	Plain    bool   // HTTP without TLS
	Region   string // empty = us-east-1, which servers of one's own take
	Bucket   string // must exist
	Prefix   string // of all keys, without slashes at its ends; empty = none
	Style    string // StylePath, StyleHost, or empty: that of the endpoint

	// AccessKey and SecretKey sign requests. Without both the environment, the shared file of credentials and DialRole are used.
	AccessKey, SecretKey string
	// DialRole connects to RoleServices and to the security token service, for the keys of the machine's role. If it is nil, no role is used.
	DialRole func(ctx context.Context, network, address string) (net.Conn, error)

	MaxBytes int64  // of one content; DefaultMaxBytes
	Spool    string // directory for contents on their way to the bucket; empty = that of the operating system
	// Writes hears of bytes as they are about to be written to Spool; optional. It must not block.
	Writes func(bytes int64)
	// Dial connects to the endpoint; required, because it is where the policy of the network holds.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	// s3Attempts is how often a request is made that a server could not answer; the library waits in between, up to a second.
	s3Attempts = 4
	// s3Patience bounds one request without its content, with all its attempts.
	s3Patience = 30 * time.Second
	// s3Pace in bytes a second is the slowest transfer of content that is waited for.
	s3Pace = 64 << 10
	// s3Idle bounds the time without a byte of a content that is read.
	s3Idle = 30 * time.Second
	// inMemory bounds what one Put holds in memory; the rest of a longer content waits on disk for its digest.
	inMemory = 64 << 10
	// freshFor is how long a copy counts as put just now. It is shorter than any idle time by far more than clocks differ.
	freshFor = 10 * time.Minute
)

// S3 is a Store in a bucket of a server that speaks the S3 protocol. A content is the object
// <prefix>/ab/<digest>.<uuid>. Each Put that finds no fresh copy makes one under a new name and removes the older ones that it saw,
// and a sweep removes the names that it saw to be idle. So no one removes what another one has just put, without a lock, which the
// protocol does not have. Readers take the newest copy.
type S3 struct {
	client  *minio.Core
	options S3Options
}

var _ Backend = (*S3)(nil)

// OpenS3 prepares the store. It makes no request; ID is the first that finds out whether the bucket is there.
func OpenS3(options S3Options) (*S3, error) {
	if options.MaxBytes == 0 {
		options.MaxBytes = DefaultMaxBytes
	}
	if options.Writes == nil {
		options.Writes = func(int64) {}
	}
	if options.Region == "" {
		options.Region = "us-east-1"
	}

	client, err := newS3Client(options)
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	return &S3{client, options}, nil
}

// name returns the key of an object below the prefix.
func (s *S3) name(parts ...string) string {
	if s.options.Prefix != "" {
		parts = append([]string{s.options.Prefix}, parts...)
	}
	return strings.Join(parts, "/")
}

// copyNames returns what the keys of all copies of a content begin with.
func (s *S3) copyNames(digest string) string {
	return s.name(digest[:2], digest) + "."
}

// digestOf returns the digest in the key of a copy; empty for other objects.
func (s *S3) digestOf(key string) string {
	digest, _, dotted := strings.Cut(path.Base(key), ".")
	if !dotted || !ValidDigest(digest) || !strings.HasPrefix(key, s.copyNames(digest)) {
		return ""
	}
	return digest
}

// copies returns the copies of a content, the newest first.
func (s *S3) copies(ctx context.Context, digest string) (found []minio.ObjectInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, s3Patience)
	defer cancel()
	for object, err := range s.list(ctx, s.copyNames(digest)) {
		if err != nil {
			return nil, s.failed("list copies of a blob", err)
		}
		if s.digestOf(object.Key) != digest {
			continue
		}
		found = append(found, object)
		if last := len(found) - 1; object.LastModified.After(found[0].LastModified) {
			found[0], found[last] = found[last], found[0]
		}
	}
	return found, nil
}

// Put implements Store. The digest is known only at the end, so a long content waits on disk before it is sent. The signature of each request
// has the digest of what it sends, so that the server refuses what was changed on its way.
func (s *S3) Put(ctx context.Context, from io.Reader) (digest string, size int64, err error) {
	digest, size, result, err := s.put(ctx, from)
	count(result, size, err)
	return digest, size, err
}

func (s *S3) put(ctx context.Context, from io.Reader) (digest string, size int64, result string, err error) {
	spool, err := s.spool(ctx, from)
	if err != nil {
		return "", 0, "", err
	}
	defer spool.close()

	result, err = s.keep(ctx, spool.digest, spool, spool.size)
	return spool.digest, spool.size, result, err
}

// PutBytes implements Store.
func (s *S3) PutBytes(ctx context.Context, content []byte) (digest string, err error) {
	if int64(len(content)) > s.options.MaxBytes {
		return "", s.tooLarge()
	}

	sum := sha256.Sum256(content)
	digest = format(sum[:])
	result, err := s.keep(ctx, digest, bytes.NewReader(content), int64(len(content)))
	count(result, int64(len(content)), err)
	if err != nil {
		return "", err
	}
	return digest, nil
}

// Stage implements Store. A caller on another node that finds a fresh copy relies on it and leaves no trace, so no copy can be withdrawn.
func (s *S3) Stage(ctx context.Context, content []byte) (withdraw func() error, err error) {
	_, err = s.PutBytes(ctx, content)
	return nil, err
}

func (s *S3) tooLarge() error {
	return fault.Newf(fault.TooLarge, "content is over %d bytes", s.options.MaxBytes)
}

// keep makes sure that there is a fresh copy of the content.
func (s *S3) keep(ctx context.Context, digest string, content io.ReaderAt, size int64) (result string, err error) {
	if err := ctx.Err(); err != nil {
		return "", unavailable("put blob", err)
	}

	older, err := s.copies(ctx, digest)
	if err != nil {
		return "", err
	}
	if len(older) > 0 && older[0].Size == size && time.Since(older[0].LastModified) < freshFor {
		return "known", nil
	}

	sending, cancel := context.WithTimeout(ctx, s3Patience+time.Duration(size/s3Pace)*time.Second)
	defer cancel()
	key := s.copyNames(digest) + uuid.Must(uuid.NewV7()).String()
	if err := s.upload(sending, key, "application/octet-stream", content, size, digest); err != nil {
		if errors.Is(err, errOtherChecksum) {
			_ = s.remove(ctx, key) // readers would take it; a digest is compared when it is read, too
		}
		return "", s.failed("put blob", err)
	}

	result = "new"
	for _, object := range older {
		result = "known"
		_ = s.remove(ctx, object.Key) // a copy that stays costs room until the next Put or the sweep
	}
	return result, nil
}

func (s *S3) remove(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, s3Patience)
	defer cancel()
	err := s.client.RemoveObject(ctx, s.options.Bucket, key, minio.RemoveObjectOptions{})
	if err != nil && !isMissing(err) {
		return s.failed("delete blob", err)
	}
	return nil
}

// Stat implements Store.
func (s *S3) Stat(ctx context.Context, digest string) (size int64, err error) {
	if err := checkDigest(digest); err != nil {
		return 0, err
	}

	found, err := s.copies(ctx, digest)
	if err != nil {
		return 0, err
	}
	if len(found) == 0 {
		return 0, noSuchContent("stat blob", digest)
	}
	return found[0].Size, nil
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, digest string) error {
	_, err := s.DeleteIdle(ctx, digest, time.Time{})
	return err
}

// DeleteIdle implements Backend. It removes the names that it saw: a copy that is put meanwhile has another one.
func (s *S3) DeleteIdle(ctx context.Context, digest string, since time.Time) (gone bool, err error) {
	if err := checkDigest(digest); err != nil {
		return false, err
	}

	found, err := s.copies(ctx, digest)
	if err != nil {
		return false, err
	}
	if len(found) > 0 && !since.IsZero() && found[0].LastModified.After(since) {
		return false, nil
	}
	for _, object := range found {
		if err := s.remove(ctx, object.Key); err != nil {
			return false, err
		}
	}
	return true, nil
}

// EachIdle implements Backend, in order of the digests. Unfinished uploads of processes that died are removed afterwards.
func (s *S3) EachIdle(ctx context.Context, since time.Time, visit func(digest string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	current, fresh, last := "", false, "" // copies of one content follow each other
	finish := func() error {
		if current == "" || fresh {
			return nil
		}
		return visit(current)
	}

	for object, err := range s.list(ctx, s.name("")) {
		if err != nil {
			return s.failed("list blobs", err)
		}
		digest := s.digestOf(object.Key)
		if digest == "" {
			continue
		}

		if object.Key <= last { // also what keeps a server that repeats a page from being listed forever
			return s.failed("list blobs", fmt.Errorf("the server lists %s after %s", object.Key, last))
		}
		last = object.Key
		if digest != current {
			if err := finish(); err != nil {
				return err
			}
			current, fresh = digest, false
		}
		fresh = fresh || object.LastModified.After(since)
	}
	if err := finish(); err != nil {
		return err
	}
	s.abortAbandoned(ctx)
	return nil
}

// ID implements Backend.
func (s *S3) ID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s3Patience)
	defer cancel()
	content, err := s.get(ctx, s.name(idName), 0)
	if isMissing(err) {
		return "", nil
	}
	if err != nil {
		return "", s.failed("read the id of the blob store", err)
	}
	defer func() { _ = content.Close() }() // it was only read

	id, err := io.ReadAll(io.LimitReader(content, IDBytes))
	if err != nil {
		return "", s.failed("read the id of the blob store", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// SetID implements Backend.
func (s *S3) SetID(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, s3Patience)
	defer cancel()
	line := []byte(id + "\n")
	sum := sha256.Sum256(line)
	err := s.upload(ctx, s.name(idName), "text/plain", bytes.NewReader(line), int64(len(line)), format(sum[:]))
	if err != nil {
		return s.failed("write the id of the blob store", err)
	}
	return nil
}

func isMissing(err error) bool {
	said, is := errors.AsType[minio.ErrorResponse](err)
	return is && said.Code == minio.NoSuchKey
}

func noSuchContent(operation, digest string) error {
	return fault.Wrap(fault.NotFound, "no such content", fmt.Errorf("%s: there is no %s", operation, digest))
}

// remedies say what an operator does about an answer of the server.
var remedies = map[string]string{
	minio.NoSuchBucket:             "make the bucket or correct blob_url",
	minio.AccessDenied:             "let the key list, read, write and delete objects of the bucket",
	"InvalidAccessKeyId":           "correct blob.access_key, or the key of the environment, file or role",
	"XAdminUserNotFound":           "correct blob.access_key, or the key of the environment, file or role", // what Versity's gateway says
	"SignatureDoesNotMatch":        "correct blob.secret_key, or the region in blob_url",
	"RequestTimeTooSkewed":         "set the clock of this machine",
	"XAmzContentSHA256Mismatch":    "the content was changed on its way",
	"AuthorizationHeaderMalformed": "correct the region in blob_url",
	"PermanentRedirect":            "correct the endpoint and the region in blob_url",
}

// failed adds the bucket, the server's code and what to do about it, for the log.
func (s *S3) failed(operation string, err error) error {
	if said, is := errors.AsType[minio.ErrorResponse](err); is {
		err = fmt.Errorf("%s (HTTP status %d): %w", said.Code, said.StatusCode, err)
		if remedy := remedies[said.Code]; remedy != "" {
			err = fmt.Errorf("%w: %s", err, remedy)
		}
	}
	return unavailable(operation, fmt.Errorf("bucket %s at %s: %w", s.options.Bucket, s.options.Endpoint, err))
}

// spooled is a content whose digest is known: its beginning in memory, or all of it in a file without a name, which is gone with the
// process.
type spooled struct {
	io.ReaderAt
	digest string
	size   int64
	file   *os.File
}

func (s *spooled) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}

// spool reads to the end.
func (s *S3) spool(ctx context.Context, from io.Reader) (_ *spooled, err error) {
	source, sum := &source{ctx: ctx, from: from}, sha256.New()
	limited := io.TeeReader(io.LimitReader(source, s.options.MaxBytes+1), sum)
	var beginning bytes.Buffer
	size, err := io.CopyN(&beginning, limited, inMemory)
	spool := &spooled{ReaderAt: bytes.NewReader(beginning.Bytes())}

	if err == nil { // there may be more
		if spool.file, err = s.openSpool(); err != nil {
			return nil, unavailable("put blob", err)
		}
		spool.ReaderAt = spool.file
		defer func() {
			if err != nil {
				spool.close()
			}
		}()

		var more int64
		more, err = io.Copy(announced{spool.file, s.options.Writes}, io.MultiReader(&beginning, limited))
		size = more
	} else if errors.Is(err, io.EOF) {
		err = nil
	}

	switch {
	case source.err != nil:
		err = source.fault()
	case err != nil:
		err = unavailable("write blob", err)
	case size > s.options.MaxBytes:
		err = s.tooLarge()
	}
	if err != nil {
		return nil, err
	}

	spool.size, spool.digest = size, format(sum.Sum(nil))
	return spool, nil
}

// openSpool opens a file that has no name any more.
func (s *S3) openSpool() (*os.File, error) {
	file, err := os.CreateTemp(s.options.Spool, "put-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
