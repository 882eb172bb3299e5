package blob

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSignature signs the requests of Amazon's documentation ("Authenticating Requests: Using the Authorization Header", examples).
func TestSignature(t *testing.T) {
	client, err := newS3Client(S3Options{
		Endpoint: "s3.amazonaws.com:443", Bucket: "examplebucket", HostStyle: true, Region: "us-east-1",
		AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if client.base.Host != "examplebucket.s3.amazonaws.com" {
		t.Fatalf("the host is %q", client.base.Host)
	}

	for query, want := range map[string]string{
		"max-keys=2&prefix=J": "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
		"lifecycle=":          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://examplebucket.s3.amazonaws.com/?"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		client.sign(request, emptyDigest, time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC))
		if got := request.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+want) {
			t.Errorf("%s: got %s, want the signature %s", query, got, want)
		}
	}
}

func TestWrongBuckets(t *testing.T) {
	for name, options := range map[string]S3Options{
		"no endpoint":         {Bucket: "b"},
		"a path":              {Endpoint: "host/path", Bucket: "b"},
		"a user":              {Endpoint: "user@host", Bucket: "b"},
		"a port alone":        {Endpoint: ":9000", Bucket: "b"},
		"no bucket":           {Endpoint: "host"},
		"what is no host":     {Endpoint: "a host", Bucket: "b"},
		"the end of a scheme": {Endpoint: "//host", Bucket: "b"},
	} {
		if _, err := newS3Client(options, nil); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestS3Escape(t *testing.T) {
	if got, want := s3Escape("/b/a +ü~(1)%/x"), "/b/a%20%2B%C3%BC~%281%29%25/x"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := s3Query(map[string][]string{"prefix": {"a b+~"}, "list-type": {"2"}}), "list-type=2&prefix=a%20b%2B~"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
