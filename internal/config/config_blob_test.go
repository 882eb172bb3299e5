package config

import (
	"strings"
	"testing"
)

func TestBlobStore(t *testing.T) {
	keys := []string{"INBOX_BLOB_ACCESS_KEY=name", "INBOX_BLOB_SECRET_KEY=hidden-hidden"}
	for text, want := range map[string]BlobStore{
		"s3://files":                                        {Bucket: "files", Region: "us-east-1", Endpoint: "s3.us-east-1.amazonaws.com"},
		"s3://files/a/b/?region=eu-1":                       {Bucket: "files", Prefix: "a/b", Region: "eu-1", Endpoint: "s3.eu-1.amazonaws.com"},
		"s3://files?endpoint=s3.test:9":                     {Bucket: "files", Region: "us-east-1", Endpoint: "s3.test:9"},
		"s3://files?endpoint=http://127.0.0.1:7&style=host": {Bucket: "files", Region: "us-east-1", Endpoint: "127.0.0.1:7", Plain: true, Style: "host"},
		"s3://files?style=path":                             {Bucket: "files", Region: "us-east-1", Endpoint: "s3.us-east-1.amazonaws.com", Style: "path"},
	} {
		c, err := Load("", append([]string{"INBOX_BLOB_URL=" + text}, keys...))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := c.BlobStore(); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", text, got, err, want)
		}
		if shown, err := c.Document(true); err != nil || strings.Contains(string(shown), "hidden-hidden") || !strings.Contains(string(shown), redacted) {
			t.Errorf("config show prints %s, %v", shown, err)
		}
	}

	for setting, want := range map[string]string{
		"INBOX_BLOB_URL=ftp://host/x":                      "is not an address of a store",
		"INBOX_BLOB_URL=file:relative":                     "is not an address of a store",
		"INBOX_BLOB_URL=s3://u:p@files":                    "is not an address of a store",
		"INBOX_BLOB_URL=s3://files?secret_key=abcdef":      `unknown parameter "secret_key"`,
		"INBOX_BLOB_URL=s3://files?style=odd":              "neither path nor host",
		"INBOX_BLOB_URL=s3://files?endpoint=https://h/way": "not scheme, host and port",
		"INBOX_BLOB_SECRET_KEY=hidden-hidden":              "blob_url is no bucket",
	} {
		_, err := Load("", []string{setting})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "abcdef") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: got %v; want %q", setting, err, want)
		}
	}

	if _, err := Load("", []string{"INBOX_BLOB_URL=s3://files"}); err != nil {
		t.Errorf("a bucket whose keys are elsewhere: %v", err)
	}
	for _, one := range keys {
		if _, err := Load("", []string{"INBOX_BLOB_URL=s3://files", one}); err == nil || !strings.Contains(err.Error(), "belong together") {
			t.Errorf("only %s: %v", one, err)
		}
	}

	plain := append([]string{"INBOX_FEDERATION_ALLOW_PRIVATE=false", "INBOX_PUBLIC_URL=https://a.example", "INBOX_BLOB_URL=s3://files?endpoint=http://s3.example"}, keys...)
	if _, err := Load("", plain); err == nil || !strings.Contains(err.Error(), "in the clear") {
		t.Errorf("an endpoint without TLS: %v", err)
	}
}
