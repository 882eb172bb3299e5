package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"inbox/identity"
)

// OrphanedDomain is a domain that is in no table [[domains]] any more and whose data is still there.
type OrphanedDomain struct {
	Domain    string `json:"domain"`
	Directory string `json:"directory"`
	Schema    string `json:"schema,omitempty"` // of the PostgreSQL database, with its rows; empty = the rows are in the directory
	Files     string `json:"files,omitempty"`  // where they are in a bucket, without its password; empty = they are in the directory
}

// OrphanedDomains returns the domains whose data is left of earlier settings. The server at the top of the file knows them.
func (c *Config) OrphanedDomains() ([]OrphanedDomain, error) {
	if c.HostedBy != "" {
		return nil, nil
	}
	entries, err := os.ReadDir(filepath.Join(c.DataDir, "domains"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for data of earlier domains: %w", err)
	}

	var left []OrphanedDomain
	for _, entry := range entries {
		known := slices.ContainsFunc(c.Hosted, func(one *Config) bool { return fileName(one.Domain) == entry.Name() })
		domain, err := identity.ParseDomain(strings.ReplaceAll(entry.Name(), "_", ":"))
		if !entry.IsDir() || known || err != nil {
			continue
		}
		one := OrphanedDomain{Domain: domain, Directory: filepath.Join(c.DataDir, "domains", entry.Name())}
		if c.DatabaseURL != "sqlite" {
			one.Schema = SchemaOf(domain)
		}
		if files := filesOf(c.BlobURL, domain); files != c.BlobURL {
			one.Files = files.String()
		}
		left = append(left, one)
	}
	return left, nil
}
