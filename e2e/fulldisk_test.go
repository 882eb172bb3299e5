package e2e

import (
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/load"
	"inbox/internal/await"
)

// limitFiles bounds the size of the files that the server writes, as a full disk does; "unlimited" ends that.
func (s *server) limitFiles(bytes string) {
	s.t.Helper()
	process, err := s.Process()
	if err != nil {
		s.t.Fatal(err)
	}
	if output, err := exec.Command("prlimit", "--pid", strconv.Itoa(process), "--fsize="+bytes+":").CombinedOutput(); err != nil {
		s.t.Fatalf("prlimit: %v\n%s", err, output)
	}
}

// largestFile is the size of the largest file below the server's directory.
func (s *server) largestFile() (largest int64) {
	s.t.Helper()
	err := filepath.WalkDir(s.Directory, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			largest = max(largest, info.Size())
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return largest
}

// TestDiskThatFillsUnderMail: 32 programs bring mail while the disk fills. Each mail is stored if and only if its sender was told so, and
// the server goes on when there is room again.
func TestDiskThatFillsUnderMail(t *testing.T) {
	p := startPost(t, "")
	p.limitFiles(strconv.FormatInt(p.largestFile()+6<<20, 10))
	var lock sync.Mutex
	told := map[string]error{}
	var senders sync.WaitGroup
	for number := range 32 {
		senders.Go(func() {
			for mail := range 8 {
				id := fmt.Sprintf("%d.%d@sender.test", number, mail)
				err := p.bringSigned(number, id, strings.Repeat("A line of the mail.\n", 2700))
				lock.Lock()
				told[id] = err
				lock.Unlock()
			}
		})
	}

	await.Done(t, senders.Wait, "the answers to all mails")
	p.limitFiles("unlimited")
	accepted := 0
	for id, err := range told {
		stored, failure := p.Column(t.Context(), "SELECT id FROM turns WHERE native_id = $1", id)
		if failure != nil {
			t.Fatal(failure)
		}
		if (err == nil) != (len(stored) == 1) {
			t.Errorf("the sender of %s was told %v, and %d turns are stored", id, err, len(stored))
		}
		if err == nil {
			accepted++
		}
	}
	if accepted == 0 || !strings.Contains(p.Log(), "disk I/O error") {
		t.Errorf("%d of %d mails were accepted; the disk was to become full", accepted, len(told))
	}

	if err := p.bringSigned(99, "later@sender.test", "There is room again.\n"); err != nil {
		t.Errorf("a mail after there is room again: %v", err)
	}
	if state := p.state("later@sender.test"); state != "answered" {
		t.Errorf("it is %s", state)
	}
}

// bringSigned sends a signed mail of one of the domain's people.
func (p *post) bringSigned(number int, id, body string) error {
	from := fmt.Sprintf("person%d@sender.test", number)
	mail, err := p.sender.Sign(load.Mail{From: from, To: "echo@inbox.test", MessageID: id, Subject: "Hi", Body: body}.Bytes())
	if err != nil {
		return err
	}
	connection, err := load.DialMail(p.Settings.SMTP)
	if err != nil {
		return err
	}
	defer connection.Close()
	return connection.Send(from, "echo@inbox.test", mail)
}
