package backup_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"inbox/engine/backup"
	"inbox/internal/sealing"
)

// opener is a proof by one key: documents of the namespace "sealed" are to open with it.
type opener struct{ box *sealing.Box }

func (o opener) Check(namespace, key, value string) error {
	if namespace != "sealed" {
		return nil
	}
	_, err := o.box.Open(value, key)
	return err
}

func (o opener) Opens(namespace, _ string) bool { return namespace == "sealed" }

func proofOf(key []byte) (backup.Proof, error) {
	box, err := sealing.New(key)
	if err != nil {
		return nil, err
	}
	return opener{box}, nil
}

// TestSecretsOfABackupOpen: a backup is intact only if its secret key opens everything that is sealed in it, and is a key at all.
func TestSecretsOfABackupOpen(t *testing.T) {
	key := sealing.NewKey()
	for name, test := range map[string]struct {
		file     []byte // the key in the backup; nil = none
		problem  string
		sealed   int64
		problems int64
	}{
		"the key of the server": {key, "", 2, 0},
		"the key of another":    {sealing.NewKey(), "row ", 0, 2},
		"no key":                {[]byte("short"), backup.KeyFile, 0, 1},
		"left out":              {nil, "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []string{"sqlite", "postgres"} {
				t.Run(kind, func(t *testing.T) {
					p := newPlace(t, kind)
					s := p.open(t)
					p.fill(t, s, 1)
					box, err := sealing.New(key)
					if err != nil {
						t.Fatal(err)
					}
					for i := range 2 {
						id := fmt.Sprint("key ", i)
						if err := s.State().Put(t.Context(), "sealed", id, []byte(box.Seal([]byte("secret"), id)), time.Time{}); err != nil {
							t.Fatal(err)
						}
					}

					files := []backup.SmallFile{{Name: backup.ConfigFile, Content: []byte("domain = \"a.test\"\n")}}
					if test.file != nil {
						files = append(files, backup.SmallFile{Name: backup.KeyFile, Content: test.file})
					}
					directory := t.TempDir()
					report, err := backup.Write(t.Context(), backup.Options{
						Directory: directory, Program: "test", Keep: 1, Sources: []backup.Source{{Domain: "a.test", Store: s, Blobs: p.blobs}}, Files: files, Proof: proofOf,
					})
					if err != nil {
						t.Fatal(err)
					}
					found, err := backup.Verify(t.Context(), directory, "", proofOf, nil)
					if err != nil {
						t.Fatal(err)
					}
					if found.Intact() != (test.problems == 0) || found.Found != test.problems || found.Sealed != test.sealed || !strings.Contains(strings.Join(found.Problems, "\n"), test.problem) {
						t.Errorf("%d problems %q, %d secrets opened; want %d and %d", found.Found, found.Problems, found.Sealed, test.problems, test.sealed)
					}
					if len(report.Problems) != len(found.Problems) {
						t.Errorf("the report of the backup names %q", report.Problems)
					}
				})
			}
		})
	}
}
