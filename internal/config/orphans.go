package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
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
	parent := filepath.Join(c.DataDir, "domains")
	entries, err := os.ReadDir(parent)
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
		if known || err != nil || !isDirectory(parent, entry) {
			continue
		}
		one := OrphanedDomain{Domain: domain, Directory: filepath.Join(parent, entry.Name())}
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

// isDirectory reports whether an entry is a directory or a link to one. A link that leads nowhere counts, too: the disk with the data may not be mounted.
func isDirectory(parent string, entry fs.DirEntry) bool {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.IsDir()
	}
	target, err := os.Stat(filepath.Join(parent, entry.Name()))
	return err != nil || target.IsDir()
}

// SettingsOf returns the settings with which the data of an orphaned domain is opened. It has no agents, and the settings at the top.
func (c *Config) SettingsOf(one OrphanedDomain) *Config {
	settings := *c
	copyLists(reflect.ValueOf(&settings).Elem())
	settings.Domain, settings.HostedBy = one.Domain, c.Domain
	settings.Domains, settings.Hosted, settings.Agents, settings.Connectors, settings.Targets = nil, nil, nil, nil, nil
	settings.inherit(c, Domain{Name: one.Domain})
	return &settings
}
