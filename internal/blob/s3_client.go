package blob

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

const (
	// partBytes is the size of a part. Longer contents are uploaded in parts, so that a failed request repeats one part.
	partBytes = 16 << 20
	// abortPatience bounds how long a failed upload waits for the server to remove its parts.
	abortPatience = 5 * time.Second
	// abandonedAfter is the age at which an unfinished upload belongs to a process that died.
	abandonedAfter = 24 * time.Hour
	// s3Answer bounds an answer that is read into memory: a page of a thousand names, of up to a kilobyte each.
	s3Answer = 8 << 20
)

// Headers of checksums (Amazon S3 API Reference, "PutObject" and "CreateMultipartUpload").
const (
	checksumHeader    = "X-Amz-Checksum-Sha256"
	checksumAlgorithm = "X-Amz-Checksum-Algorithm"
)

// newS3Client returns the library's client for the endpoint in the options. It makes no request.
func newS3Client(options S3Options) (*minio.Core, error) {
	endpoint := url.URL{Scheme: "https", Host: options.Endpoint}
	port := ":443"
	if options.Plain {
		endpoint.Scheme, port = "http", ":80"
	}
	if parsed, err := url.Parse(endpoint.String()); err != nil || parsed.Host != options.Endpoint || parsed.Hostname() == "" {
		return nil, fmt.Errorf("%q is not a host or host:port", options.Endpoint)
	}
	if strings.HasSuffix(endpoint.Host, "]") {
		endpoint.Host += port // the library reads an IPv6 address only with its port
	}
	if err := s3utils.CheckValidBucketName(options.Bucket); err != nil {
		return nil, err
	}

	lookup := minio.BucketLookupAuto
	switch options.Style {
	case StylePath:
		lookup = minio.BucketLookupPath
	case StyleHost:
		lookup = minio.BucketLookupDNS
	}

	client, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds: newS3Credentials(options), Secure: !options.Plain, Region: options.Region, BucketLookup: lookup, MaxRetries: s3Attempts,
		Transport: s3Transport{&http.Transport{
			DialContext: options.Dial, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: s3Patience, IdleConnTimeout: time.Minute,
			MaxIdleConnsPerHost: 16, MaxConnsPerHost: 64, ForceAttemptHTTP2: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		}},
	})
	if err != nil {
		return nil, err
	}
	client.SetS3EnableDualstack(strings.Contains(options.Endpoint, ".dualstack.")) // the operator chose the host
	return client, nil
}

// upload writes an object with the content of that digest. If it fails, the object may exist.
func (s *S3) upload(ctx context.Context, key, kind string, content io.ReaderAt, size int64, digest string) error {
	if size > partBytes {
		return s.uploadParts(ctx, key, kind, content, size)
	}

	sum, err := hex.DecodeString(digest)
	if err != nil {
		return err
	}
	checksum := base64.StdEncoding.EncodeToString(sum)
	// DisableContentSha256 makes the library sign the digest itself. Over plain HTTP it would otherwise hash and sign pieces of the content.
	info, err := s.client.PutObject(ctx, s.options.Bucket, key, io.NewSectionReader(content, 0, size), size, "", digest, minio.PutObjectOptions{
		ContentType: kind, DisableContentSha256: true, UserMetadata: map[string]string{checksumHeader: checksum},
	})
	if err != nil {
		return err
	}
	return compareChecksum(info.ChecksumSHA256, checksum)
}

// uploadParts is upload in requests of partBytes. The library's own PutObject is not used for it, because it repeats no part whose
// checksum it sends.
func (s *S3) uploadParts(ctx context.Context, key, kind string, content io.ReaderAt, size int64) (err error) {
	bucket := s.options.Bucket
	id, err := s.client.NewMultipartUpload(ctx, bucket, key, minio.PutObjectOptions{
		ContentType: kind, UserMetadata: map[string]string{checksumAlgorithm: "SHA256"},
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
			defer cancel()
			_ = s.client.AbortMultipartUpload(ctx, bucket, key, id) // parts that stay cost room until a sweep finds them
		}
	}()

	var parts []minio.CompletePart
	whole := sha256.New() // the checksum of the object is that of the checksums of its parts
	for offset := int64(0); offset < size; offset += partBytes {
		section := io.NewSectionReader(content, offset, min(partBytes, size-offset))
		sum := sha256.New()
		if _, err := io.Copy(sum, section); err != nil {
			return fmt.Errorf("read part of the content: %w", err)
		}
		digest := sum.Sum(nil)
		whole.Write(digest)
		checksum := base64.StdEncoding.EncodeToString(digest)

		part, err := s.client.PutObjectPart(ctx, bucket, key, id, len(parts)+1, section, section.Size(), minio.PutObjectPartOptions{
			Sha256Hex: format(digest), DisableContentSha256: true, CustomHeader: http.Header{checksumHeader: {checksum}},
		})
		if err != nil {
			return err
		}
		if err := compareChecksum(part.ChecksumSHA256, checksum); err != nil {
			return err
		}
		parts = append(parts, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag, ChecksumSHA256: part.ChecksumSHA256})
	}

	info, err := s.client.CompleteMultipartUpload(ctx, bucket, key, id, parts, minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	reported, _, _ := strings.Cut(info.ChecksumSHA256, "-") // the number of parts follows
	return compareChecksum(reported, base64.StdEncoding.EncodeToString(whole.Sum(nil)))
}

// errOtherChecksum is returned when the server has other bytes than those that were sent.
var errOtherChecksum = errors.New("the server stored other bytes than it was sent: their checksums differ")

// compareChecksum compares the checksum that the server reports with that of the content. Many servers report none.
func compareChecksum(reported, sent string) error {
	if reported != "" && reported != sent {
		return errOtherChecksum
	}
	return nil
}

// abortAbandoned removes the parts of uploads that no process continues. What it cannot remove is left to the next sweep.
func (s *S3) abortAbandoned(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s3Patience)
	defer cancel()
	before := time.Now().Add(-abandonedAfter)
	for upload := range s.client.ListIncompleteUploads(ctx, s.options.Bucket, s.name(""), true) {
		if upload.Err == nil && s.digestOf(upload.Key) != "" && upload.Initiated.Before(before) {
			_ = s.client.AbortMultipartUpload(ctx, s.options.Bucket, upload.Key, upload.UploadID)
		}
	}
}

// list goes over the objects whose keys begin with prefix, in the server's order. An error is the last. One page is in memory at a time.
func (s *S3) list(ctx context.Context, prefix string) iter.Seq2[minio.ObjectInfo, error] {
	return func(yield func(minio.ObjectInfo, error) bool) {
		options := minio.ListObjectsOptions{Prefix: prefix, Recursive: true, FetchOwner: new(bool)}
		for object := range s.client.ListObjectsIter(ctx, s.options.Bucket, options) {
			if !yield(object, object.Err) || object.Err != nil {
				return
			}
		}
		if err := ctx.Err(); err != nil { // the library ends the list as if it were complete
			yield(minio.ObjectInfo{}, err)
		}
	}
}

// get reads an object from the offset on. The caller closes it.
func (s *S3) get(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	options := minio.GetObjectOptions{}
	if offset > 0 {
		if err := options.SetRange(offset, 0); err != nil {
			return nil, err
		}
	}

	body, _, header, err := s.client.GetObject(ctx, s.options.Bucket, key, options)
	if err != nil {
		return nil, err
	}
	if offset > 0 && !strings.HasPrefix(header.Get("Content-Range"), fmt.Sprintf("bytes %d-", offset)) {
		return nil, errors.Join(errors.New("the server ignores from where to read"), body.Close())
	}
	return body, nil
}

// s3Transport makes the library's requests. It bounds answers that the library reads into memory, and no attempt reads the content of a
// request after its end: the library repeats a request with the same reader, from which the attempt before may still be sending.
type s3Transport struct {
	http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t s3Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet && request.URL.RawQuery == "" { // an object
		return t.RoundTripper.RoundTrip(request)
	}

	content := &s3Body{}
	if request.Body != nil && request.Body != http.NoBody {
		content.ReadCloser = request.Body
		sent := *request
		sent.Body = content
		request = &sent
	}
	answer, err := t.RoundTripper.RoundTrip(request)
	if err != nil {
		content.end()
		return nil, err
	}
	answer.Body = &s3AnswerBody{io.LimitReader(answer.Body, s3Answer), answer.Body, content}
	return answer, nil
}

// s3AnswerBody is the bounded answer to a request.
type s3AnswerBody struct {
	io.Reader
	io.Closer
	content *s3Body
}

// Close ends the request.
func (b *s3AnswerBody) Close() error {
	b.content.end()
	return b.Closer.Close()
}

// s3Body is the content of one attempt.
type s3Body struct {
	io.ReadCloser

	mu    sync.Mutex
	ended bool
}

var errAttemptEnded = errors.New("the request has ended")

// Read reads the content until the attempt has ended.
func (b *s3Body) Read(into []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return 0, errAttemptEnded
	}
	return b.ReadCloser.Read(into)
}

func (b *s3Body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}
