package blob

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// newS3Credentials returns the keys in the options or, if there are none, those that the machine has for its programs.
func newS3Credentials(options S3Options) *credentials.Credentials {
	if options.AccessKey != "" || options.SecretKey != "" {
		return credentials.NewStaticV4(options.AccessKey, options.SecretKey, "")
	}

	places := []keyPlace{
		{"the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)", &credentials.EnvAWS{}},
		{"the file of credentials", &credentials.FileAWSCredentials{}},
	}
	if options.DialRole != nil && os.Getenv("AWS_EC2_METADATA_DISABLED") != "true" {
		// A connection is closed after each request: keys are renewed once in hours.
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DialContext: options.DialRole, TLSHandshakeTimeout: 5 * time.Second, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		}}
		places = append(places, keyPlace{"the role of this machine", &credentials.IAM{Client: client, Region: options.Region}})
	}
	return credentials.New(&keyChain{places: places})
}

// RoleServices returns the host:port pairs at which clouds have the keys of a machine's role.
func RoleServices() []string {
	services := []string{credentials.DefaultIAMRoleEndpoint, credentials.DefaultECSRoleEndpoint, os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")}
	var pairs []string
	for _, service := range services {
		u, err := url.Parse(service)
		if err != nil || u.Hostname() == "" {
			continue
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		pairs = append(pairs, net.JoinHostPort(u.Hostname(), port))
	}
	return pairs
}

// keyPlace is a place where keys may be.
type keyPlace struct {
	name string
	credentials.Provider
}

// keyChain returns the key of the first place that has one. Unlike the library's chain it fails without one, and says why: the library
// would send requests without a signature.
type keyChain struct {
	places []keyPlace
	found  credentials.Provider
}

var errNoKeys = errors.New("no keys for the bucket: write blob.access_key and blob.secret_key")

// RetrieveWithCredContext implements credentials.Provider.
func (c *keyChain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	problem := errNoKeys
	for _, place := range c.places {
		value, err := place.RetrieveWithCredContext(cc)
		if err == nil && value.AccessKeyID != "" && value.SecretAccessKey != "" {
			c.found = place
			return value, nil
		}
		if err == nil {
			err = errors.New("no key")
		}
		problem = fmt.Errorf("%w; %s: %w", problem, place.name, err)
	}
	return credentials.Value{}, problem
}

// Retrieve implements credentials.Provider.
func (c *keyChain) Retrieve() (credentials.Value, error) {
	return c.RetrieveWithCredContext(&credentials.CredContext{})
}

// IsExpired implements credentials.Provider.
func (c *keyChain) IsExpired() bool { return c.found == nil || c.found.IsExpired() }
