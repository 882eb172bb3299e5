package config

import (
	"os"
	"path/filepath"
	"testing"
)

// TestOrphanedDomains: the data of a domain whose table was removed is found, that of a domain in the settings is not named.
func TestOrphanedDomains(t *testing.T) {
	data := t.TempDir()
	config := &Config{Domain: "first.example", DataDir: data, DatabaseURL: "sqlite", Hosted: []*Config{{Domain: "second.example", HostedBy: "first.example"}}}
	if left, err := config.OrphanedDomains(); err != nil || len(left) != 0 {
		t.Errorf("without data: %v, %v", left, err)
	}
	for _, name := range []string{"second.example", "third.example", "fourth.example_8443"} {
		if err := os.MkdirAll(filepath.Join(data, "domains", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	left, err := config.OrphanedDomains()
	if err != nil || len(left) != 2 || left[0].Domain != "fourth.example:8443" || left[1].Domain != "third.example" || left[1].Directory != filepath.Join(data, "domains", "third.example") {
		t.Errorf("left are %+v, %v", left, err)
	}
}

// TestFilesOfOrphanedDomainsInABucket: they are not in the directory, so that the operator has to read where they are.
func TestFilesOfOrphanedDomainsInABucket(t *testing.T) {
	data := t.TempDir()
	if err := os.MkdirAll(filepath.Join(data, "domains", "second.example"), 0o700); err != nil {
		t.Fatal(err)
	}
	for files, want := range map[SecretURL]string{
		"file":                                   "",
		"s3://bucket.example/inbox?secret_key=x": "s3://bucket.example/inbox/domains/second.example?secret_key=xxxxx",
	} {
		config := &Config{Domain: "first.example", DataDir: data, DatabaseURL: "sqlite", BlobURL: files}
		if left, err := config.OrphanedDomains(); err != nil || len(left) != 1 || left[0].Files != want {
			t.Errorf("of %s are left %+v, %v", files, left, err)
		}
	}
}

// TestOrphanedDomainsBehindLinks: the data of a domain may be on another disk, which may not be mounted. A link to a file is not a domain.
func TestOrphanedDomainsBehindLinks(t *testing.T) {
	data, elsewhere := t.TempDir(), t.TempDir()
	domains := filepath.Join(data, "domains")
	if err := os.Mkdir(domains, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(elsewhere, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"second.example": elsewhere, "third.example": filepath.Join(elsewhere, "not mounted"), "fourth.example": file} {
		if err := os.Symlink(target, filepath.Join(domains, name)); err != nil {
			t.Fatal(err)
		}
	}
	config := &Config{Domain: "first.example", DataDir: data, DatabaseURL: "sqlite"}
	if left, err := config.OrphanedDomains(); err != nil || len(left) != 2 || left[0].Domain != "second.example" || left[1].Domain != "third.example" {
		t.Errorf("left are %+v, %v", left, err)
	}
}
