// Package packedtest holds archives in the program to the files that they are made of.
package packedtest

import (
	"bytes"
	"io/fs"
	"os"
	"testing"
)

// Check fails where an archive has other files than a directory below the one of the test.
func Check(t *testing.T, archive fs.FS, directory string) {
	t.Helper()
	tree := os.DirFS(".")
	for _, pair := range []struct{ from, to fs.FS }{{tree, archive}, {archive, tree}} {
		err := fs.WalkDir(pair.from, directory, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			want, err := fs.ReadFile(pair.from, name)
			if err != nil {
				return err
			}
			if got, err := fs.ReadFile(pair.to, name); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s in the archive is not that of the tree; go generate packs it: %v", name, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
