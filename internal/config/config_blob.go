package config

import (
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
)

// Blob is the credentials of a `blob_url` that begins with `s3://`. Without them the server uses those of the environment
// (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`), of the shared file (`~/.aws/credentials`), or of the machine's role.
type Blob struct {
	// Name of the key.
	AccessKey string `toml:"access_key"`
	// The key itself. `secret_key_file` or the environment is a better place.
	SecretKey Secret `toml:"secret_key"`
	// File with the key; its last line break is left out.
	SecretKeyFile string `toml:"secret_key_file"`
}

// BlobStore is what blob_url says.
type BlobStore struct {
	// Directory of a store in files; empty for one in a bucket.
	Directory string

	// Endpoint of the server, host or host:port.
	Endpoint string
	// Plain is HTTP without TLS.
	Plain bool
	// Region that requests are signed for.
	Region string
	// Bucket must exist.
	Bucket string
	// Prefix of the keys, without slashes at its ends.
	Prefix string
	// Style is "path" or "host", which is where addresses have the bucket; empty for that of the endpoint.
	Style string
}

// BlobStore reads blob_url. After Load it has no error.
func (c *Config) BlobStore() (BlobStore, error) {
	text := c.BlobURL.Reveal()
	if text == "file" {
		return BlobStore{Directory: filepath.Join(c.DataDir, "blobs")}, nil
	}

	u, err := url.Parse(text)
	switch {
	case err != nil || u.User != nil || u.Fragment != "":
		return BlobStore{}, fmt.Errorf("is not an address of a store")
	case u.Scheme == "file" && u.Host == "" && filepath.IsAbs(u.Path) && u.RawQuery == "":
		return BlobStore{Directory: filepath.Clean(u.Path)}, nil
	case u.Scheme == "s3" && u.Host != "":
		return bucketOf(u)
	}
	return BlobStore{}, fmt.Errorf("is not an address of a store")
}

// bucketOf reads s3://bucket/prefix?endpoint=…&region=…&style=….
func bucketOf(u *url.URL) (BlobStore, error) {
	store := BlobStore{Bucket: u.Host, Prefix: strings.Trim(path.Clean("/"+u.Path), "/"), Region: "us-east-1"}
	endpoint := ""
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return BlobStore{}, fmt.Errorf("has parameters that cannot be read")
	}
	for name, values := range query {
		switch value := values[len(values)-1]; name {
		case "endpoint":
			endpoint = value
		case "region":
			store.Region = value
		case "style":
			if value != "path" && value != "host" {
				return BlobStore{}, fmt.Errorf("has the style %q, which is neither path nor host", value)
			}
			store.Style = value
		default:
			return BlobStore{}, fmt.Errorf("has the unknown parameter %q", name)
		}
	}

	if endpoint == "" {
		endpoint = "https://s3." + store.Region + ".amazonaws.com"
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}

	at, err := url.Parse(endpoint)
	if err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Hostname() == "" || at.User != nil || strings.Trim(at.Path, "/") != "" || at.RawQuery != "" {
		return BlobStore{}, fmt.Errorf("has an endpoint that is not scheme, host and port")
	}
	store.Endpoint, store.Plain = at.Host, at.Scheme == "http"
	return store, nil
}

func (c *Config) validateBlobs(p *problems) {
	store, err := c.BlobStore()
	switch {
	case err != nil:
		p.add("blob_url", err.Error(), `write "file", "file:///srv/files" or "s3://bucket/prefix?endpoint=https://s3.example.com&region=eu-west-1"`)
	case store.Directory != "" && (c.Blob.AccessKey != "" || c.Blob.SecretKey != ""):
		p.add("blob.access_key", "is not used, because blob_url is no bucket", "remove the keys or write a blob_url that begins with s3://")
	case store.Directory == "" && (c.Blob.AccessKey == "") != (c.Blob.SecretKey == ""):
		p.add("blob.access_key", "blob.access_key and blob.secret_key belong together", "write both, or set INBOX_BLOB_ACCESS_KEY and INBOX_BLOB_SECRET_KEY, or remove both to use the credentials of the environment")
	case store.Plain && !c.Federation.AllowPrivate && !isLocal(hostOfEndpoint(store.Endpoint)):
		p.add("blob_url", "has an endpoint without TLS, where files would cross the network in the clear", "write https://, or federation.allow_private = true for a closed network")
	}
}

func hostOfEndpoint(endpoint string) string {
	u := url.URL{Host: endpoint}
	return u.Hostname()
}
