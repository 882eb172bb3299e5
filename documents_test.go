package inbox_test

import (
	"io/fs"
	"os"
	"testing"

	"inbox"
	"inbox/console/handbook"
)

// TestDocumentsAreInTheProgram: a document of a new directory is in the program only if a pattern of documents.go names it.
func TestDocumentsAreInTheProgram(t *testing.T) {
	want, err := handbook.Texts(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	got, err := handbook.Texts(inbox.DocumentFiles)
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s is not in the program", name)
		}
	}

	embedded := map[string]bool{}
	err = fs.WalkDir(inbox.DocumentFiles, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			embedded[name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		delete(embedded, name)
	}
	for name := range embedded {
		t.Errorf("%s is in the program, and no server shows it", name)
	}
}
