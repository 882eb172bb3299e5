package blob

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"inbox/internal/clock"
)

const (
	// s3Answer bounds an answer that is read into memory: a page of a thousand names, of up to a kilobyte each.
	s3Answer = 8 << 20
	// s3Refusal bounds what is read of an error.
	s3Refusal = 64 << 10
)

// s3Client makes the four requests of the S3 protocol that a Store needs, signed with AWS Signature Version 4 (Amazon S3 API Reference,
// "Authenticating Requests: Using the Authorization Header").
type s3Client struct {
	http      *http.Client
	base      url.URL // of the bucket; its path has no slash at its end
	region    string
	accessKey string
	secretKey string
}

// object is what a list says of one.
type object struct {
	Key          string    `xml:"Key"`
	Size         int64     `xml:"Size"`
	LastModified time.Time `xml:"LastModified"`
}

// refusal is an answer of the server that is none.
type refusal struct {
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
	status  int
}

// Error returns what the server said.
func (r *refusal) Error() string {
	return fmt.Sprintf("%s (HTTP status %d): %s", cmp.Or(r.Code, "no reason"), r.status, cmp.Or(r.Message, "nothing was said"))
}

func newS3Client(options S3Options, transport http.RoundTripper) (*s3Client, error) {
	base := url.URL{Scheme: "https", Host: options.Endpoint}
	port := ":443"
	if options.Plain {
		base.Scheme, port = "http", ":80"
	}
	if parsed, err := url.Parse(base.String()); err != nil || parsed.Host != options.Endpoint || parsed.Hostname() == "" {
		return nil, fmt.Errorf("%q is not a host or host:port", options.Endpoint)
	}
	if options.Bucket == "" {
		return nil, errors.New("the name of the bucket is missing")
	}

	base.Host = strings.TrimSuffix(base.Host, port) // as servers write it for their part of the signature
	if options.HostStyle {
		base.Host = options.Bucket + "." + base.Host
	} else {
		base.Path = "/" + options.Bucket
	}

	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a signature is for one host
	client := &http.Client{Transport: transport, CheckRedirect: stay}
	return &s3Client{client, base, options.Region, options.AccessKey, options.SecretKey}, nil
}

// put writes an object of size bytes with the digest.
func (c *s3Client) put(ctx context.Context, key, kind string, content io.ReaderAt, size int64, digest string) error {
	answer, err := c.do(ctx, s3Request{method: http.MethodPut, key: key, kind: kind, content: content, size: size, digest: digest})
	if err != nil {
		return err
	}
	return answer.Close()
}

// get reads an object from the offset on. The caller closes it.
func (c *s3Client) get(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	return c.do(ctx, s3Request{method: http.MethodGet, key: key, offset: offset})
}

// remove removes an object; one that is not there is removed.
func (c *s3Client) remove(ctx context.Context, key string) error {
	answer, err := c.do(ctx, s3Request{method: http.MethodDelete, key: key})
	if err != nil {
		return err
	}
	return answer.Close()
}

// list goes over the objects whose keys begin with prefix, in the order of their keys. An error is the last.
func (c *s3Client) list(ctx context.Context, prefix string) iter.Seq2[object, error] {
	return func(yield func(object, error) bool) {
		for token := ""; ; {
			page, err := c.page(ctx, prefix, token)
			if err != nil {
				yield(object{}, err)
				return
			}
			for _, one := range page.Contents {
				if !yield(one, nil) {
					return
				}
			}

			if !page.IsTruncated {
				return
			}
			if page.NextContinuationToken == "" || page.NextContinuationToken == token {
				yield(object{}, errors.New("the server lists more objects and does not say how they go on"))
				return
			}
			token = page.NextContinuationToken
		}
	}
}

// s3Page is the answer of ListObjectsV2.
type s3Page struct {
	IsTruncated           bool     `xml:"IsTruncated"`
	NextContinuationToken string   `xml:"NextContinuationToken"`
	EncodingType          string   `xml:"EncodingType"`
	Contents              []object `xml:"Contents"`
}

func (c *s3Client) page(ctx context.Context, prefix, token string) (page s3Page, err error) {
	query := url.Values{"list-type": {"2"}, "prefix": {prefix}, "encoding-type": {"url"}} // XML cannot say every key
	if token != "" {
		query.Set("continuation-token", token)
	}
	answer, err := c.do(ctx, s3Request{method: http.MethodGet, query: query})
	if err != nil {
		return page, err
	}
	defer func() { _ = answer.Close() }() // it was only read

	if err := xml.NewDecoder(io.LimitReader(answer, s3Answer)).Decode(&page); err != nil {
		return page, fmt.Errorf("read a list of objects: %w", err)
	}
	if page.EncodingType == "url" {
		for i := range page.Contents {
			if page.Contents[i].Key, err = url.QueryUnescape(page.Contents[i].Key); err != nil {
				return page, fmt.Errorf("read a list of objects: %w", err)
			}
		}
	}
	return page, nil
}

// s3Request is a request before it is signed. Without a key it is for the bucket.
type s3Request struct {
	method, key string
	query       url.Values
	offset      int64 // of the content that is asked for
	kind        string
	content     io.ReaderAt
	size        int64
	digest      string // of the content that is sent
}

// do makes a request until the server answers it, at most s3Attempts times, and returns the body of an answer of success.
func (c *s3Client) do(ctx context.Context, request s3Request) (io.ReadCloser, error) {
	for attempt := 1; ; attempt++ {
		answer, err := c.once(ctx, request)
		if err == nil || attempt == s3Attempts || ctx.Err() != nil || !mayPass(err) {
			return answer, err
		}
		pause := min(time.Second, 100*time.Millisecond<<attempt)
		if clock.Sleep(ctx, pause/2+rand.N(pause/2)) != nil {
			return nil, err
		}
	}
}

// mayPass reports whether the same request may succeed a moment later: no answer came, or the server was busy or broken.
func mayPass(err error) bool {
	said, is := errors.AsType[*refusal](err)
	if !is {
		return true
	}
	switch said.status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return said.Code == "RequestTimeout" || said.Code == "SlowDown"
}

// emptyDigest is that of no content.
var emptyDigest = format(sha256.New().Sum(nil))

func (c *s3Client) once(ctx context.Context, request s3Request) (io.ReadCloser, error) {
	address := c.base
	if request.key != "" {
		address.Path += "/" + request.key
	} else if address.Path == "" {
		address.Path = "/"
	}
	address.RawPath = s3Escape(address.Path)
	address.RawQuery = s3Query(request.query)

	sent, err := http.NewRequestWithContext(ctx, request.method, address.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	digest := emptyDigest
	if request.content != nil {
		digest = request.digest
		sent.Header.Set("Content-Type", request.kind)
		if sent.ContentLength = request.size; request.size > 0 {
			// A reader of its own: that of an attempt before may still be read.
			sent.Body = io.NopCloser(io.NewSectionReader(request.content, 0, request.size))
		}
	}
	if request.offset > 0 {
		sent.Header.Set("Range", fmt.Sprintf("bytes=%d-", request.offset))
	}
	c.sign(sent, digest, time.Now())

	answer, err := c.http.Do(sent)
	if err != nil {
		return nil, err
	}
	wanted := http.StatusOK
	if request.offset > 0 {
		wanted = http.StatusPartialContent
	}
	if answer.StatusCode == wanted || answer.StatusCode == http.StatusNoContent && request.method == http.MethodDelete {
		return answer.Body, nil
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	return nil, refused(answer, request.key)
}

// refused reads what a server says, with the words of the protocol where it says only a status.
func refused(answer *http.Response, key string) error {
	said := &refusal{status: answer.StatusCode}
	if err := xml.NewDecoder(io.LimitReader(answer.Body, s3Refusal)).Decode(said); err != nil {
		said.Message = ""
	}
	if said.Code == "" {
		switch {
		case answer.StatusCode == http.StatusNotFound && key != "":
			said.Code = codeNoSuchKey
		case answer.StatusCode == http.StatusNotFound:
			said.Code = codeNoSuchBucket
		case answer.StatusCode == http.StatusForbidden:
			said.Code = codeAccessDenied
		}
	}
	return said
}

// sign adds the headers that say who asks. What is signed are the method, the address, the host, the time and the digest of the content.
func (c *s3Client) sign(request *http.Request, digest string, now time.Time) {
	moment := now.UTC().Format("20060102T150405Z")
	request.Header.Set("X-Amz-Date", moment)
	request.Header.Set("X-Amz-Content-Sha256", digest)

	const signed = "host;x-amz-content-sha256;x-amz-date"
	canonical := strings.Join([]string{
		request.Method, request.URL.EscapedPath(), request.URL.RawQuery,
		"host:" + request.URL.Host, "x-amz-content-sha256:" + digest, "x-amz-date:" + moment, "",
		signed, digest,
	}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	scope := moment[:8] + "/" + c.region + "/s3/aws4_request"
	text := "AWS4-HMAC-SHA256\n" + moment + "\n" + scope + "\n" + hex.EncodeToString(sum[:])

	key := []byte("AWS4" + c.secretKey)
	for part := range strings.SplitSeq(scope, "/") {
		key = keyed(key, part)
	}
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+c.accessKey+"/"+scope+", SignedHeaders="+signed+
		", Signature="+hex.EncodeToString(keyed(key, text)))
}

func keyed(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// s3Escape escapes a path as it is signed: all but unreserved characters and slashes (RFC 3986, section 2.3).
func s3Escape(path string) string {
	var escaped strings.Builder
	for _, b := range []byte(path) {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', strings.IndexByte("-._~/", b) >= 0:
			escaped.WriteByte(b)
		default:
			fmt.Fprintf(&escaped, "%%%02X", b)
		}
	}
	return escaped.String()
}

// s3Query is the query as it is signed: in the order of the names, with spaces as %20.
func s3Query(query url.Values) string {
	return strings.ReplaceAll(query.Encode(), "+", "%20")
}
