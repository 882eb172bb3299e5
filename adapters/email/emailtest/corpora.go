package emailtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Corpus is a public collection of mails that scripts/mail-corpora fetches.
type Corpus struct {
	Name   string
	Files  []string // patterns below its directory
	Except *regexp.Regexp
	Boxes  *regexp.Regexp // files of many mails
	Least  int            // mails
}

// Letters are collections of any mails.
func Letters() []Corpus {
	return append([]Corpus{
		{Name: "enmime", Files: []string{"testdata/mail/*.raw", "testdata/low-quality/*.raw", "testdata/attach/*.raw"}, Least: 50},
		{Name: "gluon", Files: []string{"*/testdata/*.eml", "tests/testdata/dovecot-crlf"}, Boxes: regexp.MustCompile("dovecot"), Least: 100},
		{Name: "mailpit", Files: []string{"internal/storage/testdata/*.eml"}, Least: 5},
		{Name: "wildduck", Files: []string{"package/imap-core/test/fixtures/*.eml"}, Least: 10},
		{Name: "notmuch", Files: []string{"test/corpora/*/cur/*", "test/corpora/*/*/cur/*", "test/corpora/*/*.eml", "test/corpora/default/*/*/cur/*", "test/corpora/default/??", "test/corpora/default/*/??"}, Least: 250},
		{Name: "php-horde-mime", Files: []string{"test/Horde/Mime/fixtures/*msg*.txt", "test/Horde/Mime/fixtures/bug*.txt"}, Least: 12},
		{Name: "kf5-messagelib", Files: []string{"*/autotests/data/*.mbox", "*/autotests/data/*/*.mbox", "*/src/*/autotests/data/*.mbox"}, Least: 90},
	}, Automatic()...)
}

// Automatic are collections of bounces, warnings and automatic answers. Left out is what people wrote (a letter and three advertisements), and what a
// service that no longer exists asked in the name of its user, without any mark.
func Automatic() []Corpus {
	return []Corpus{
		{Name: "flufl.bounce", Files: []string{"flufl/bounce/tests/data/*.txt"}, Least: 110, Except: regexp.MustCompile(`groupwise_03`)},
		{Name: "libmail-deliverystatus-bounceparser-perl", Files: []string{"t/corpus/*.msg"}, Least: 120, Except: regexp.MustCompile(`non-autoreply|spam-with-image|spam-bogus-email-in-report|bluebottle`)},
		{Name: "baunsu", Files: []string{"package/tests/emails/*.txt"}, Least: 13, Except: regexp.MustCompile(`ordinary|encoded_spam`)},
	}
}

// Read calls do with each mail as SMTP brings it, with CRLF. Without the corpora it fails the test, which only `make corpora` runs.
func (c Corpus) Read(t *testing.T, do func(t *testing.T, name string, mail []byte)) {
	t.Helper()
	directory := os.Getenv("INBOX_TEST_MAIL_CORPORA")
	if directory == "" {
		t.Fatal("INBOX_TEST_MAIL_CORPORA names no directory; run make corpora")
	}
	root := filepath.Join(directory, c.Name)
	if _, err := os.Stat(root); err != nil {
		t.Fatalf("the corpus was not fetched; run scripts/mail-corpora: %v", err)
	}
	count := 0
	for _, pattern := range c.Files {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if c.Except != nil && c.Except.MatchString(filepath.Base(file)) {
				continue
			}
			mail, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			mail = bytes.ReplaceAll(bytes.ReplaceAll(mail, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
			if c.Boxes == nil || !c.Boxes.MatchString(file) {
				count++
				do(t, filepath.Base(file), mail)
				continue
			}
			for i, one := range bytes.Split(mail, []byte("\r\n\r\nFrom ")) {
				count++
				do(t, fmt.Sprint(filepath.Base(file), "-", i), append([]byte("From "), bytes.TrimPrefix(one, []byte("From "))...))
			}
		}
	}
	if count < c.Least {
		t.Errorf("%d mails; there were %d", count, c.Least)
	}
	t.Logf("%d mails", count)
}
