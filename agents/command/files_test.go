package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/internal/disk"
	"inbox/internal/fault"
	"inbox/normalized"
)

// shelf keeps files of answers.
type shelf map[string]string

func (shelf) Address(string) (string, time.Time) { return "", time.Time{} }

func (s shelf) Open(_ context.Context, digest string) (io.ReadCloser, error) {
	content, is := s[digest]
	if !is {
		return nil, fault.New(fault.NotFound, "no such content")
	}
	return io.NopCloser(strings.NewReader(content)), nil
}

const shelfLimit = 32 << 20 // of one file

func (s shelf) Put(_ context.Context, from io.Reader) (string, int64, error) {
	content, err := io.ReadAll(io.LimitReader(from, shelfLimit+1))
	if len(content) > shelfLimit {
		return "", 0, fault.New(fault.TooLarge, "the file is too large")
	}
	digest := normalized.Digest(content)
	s[digest] = string(content)
	return digest, int64(len(content)), err
}

// TestFilesOfAnAnswer: a program writes files and names them in its answer, and names nothing else.
func TestFilesOfAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		script, output string
		want           []string // of the parts: kind, name, type and content
		refused        string
	}{
		"named in JSON": {
			`printf report > "$INBOX_ANSWER_FILES/a b.pdf"; printf unused > "$INBOX_ANSWER_FILES/c"
			printf '{"parts":[{"kind":"artifact","artifact_type":"report","mime":"application/pdf","bytes_ref":{"kind":"url","url":"file:a%%20b.pdf"}}]}'`,
			OutputJSON, []string{"artifact a b.pdf application/pdf report"}, "",
		},
		"with plain text": {
			`echo here; printf one > "$INBOX_ANSWER_FILES/1.html"; printf two > "$INBOX_ANSWER_FILES/2"`,
			OutputText, []string{"text  text/plain here", "file 1.html text/html; charset=utf-8 one", "file 2 application/octet-stream two"}, "",
		},
		"alone":        {`printf one > "$INBOX_ANSWER_FILES/1"`, OutputText, []string{"file 1 application/octet-stream one"}, ""},
		"too large":    {`echo here; head -c 33554433 /dev/zero > "$INBOX_ANSWER_FILES/zero"`, OutputText, []string{"text  text/plain here", "text  text/plain (zero is too large to be sent.)"}, ""},
		"too many":     {`cd "$INBOX_ANSWER_FILES"; for i in $(seq 100 199); do printf x > $i; done`, OutputText, append(numbered(100, 163), "text  text/plain (37 more parts are not shown.)"), ""},
		"not there":    {naming("file:none"), OutputJSON, nil, "no regular file"},
		"a link":       {`ln -s /etc/passwd "$INBOX_ANSWER_FILES/x"; ` + naming("file:x"), OutputJSON, nil, "no regular file"},
		"a pipe":       {`mkfifo "$INBOX_ANSWER_FILES/x"; ` + naming("file:x"), OutputJSON, nil, "no regular file"},
		"out of there": {naming("file:../../etc/passwd"), OutputJSON, nil, "no regular file"},
		"from root":    {naming("file:/etc/passwd"), OutputJSON, nil, "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			kept := shelf{}
			scratch := t.TempDir()
			opened, err := OpenScratch(scratch)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = opened.Close() }()
			agent := made(t, Options{Program: "/bin/sh", Arguments: []string{"-c", test.script}, Output: test.output, Scratch: opened})
			turn := agenttest.Turn("t", agenttest.Messages()["text"])
			turn.Files = kept
			var response *normalized.Response
			for delta, failed := range agent.Handle(t.Context(), turn) {
				response, err = delta.Response, failed
			}
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) || !fault.Of(err).Permanent {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}

			var got []string
			for _, part := range response.Parts {
				content := part.Content
				if part.BytesRef != nil {
					content = kept[part.BytesRef.Digest]
				}
				got = append(got, strings.Join([]string{part.Kind, part.Name, part.MIME, content}, " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if left, _ := filepath.Glob(filepath.Join(scratch, "*", "inbox-turn-*")); len(left) > 0 {
				t.Errorf("the run left %v", left)
			}
		})
	}
}

func numbered(from, to int) (files []string) {
	for i := from; i < to; i++ {
		files = append(files, fmt.Sprintf("file %d application/octet-stream x", i))
	}
	return files
}

func naming(address string) string {
	return `printf '{"parts":[{"kind":"file","mime":"a/b","bytes_ref":{"kind":"url","url":"` + address + `"}}]}'`
}

// TestLargeFilesOfAnAnswer: the bytes go from the disk to the store.
func TestLargeFilesOfAnAnswer(t *testing.T) {
	kept := shelf{}
	agent := made(t, Options{Program: "/bin/sh", Arguments: []string{"-c", `head -c 20971520 /dev/zero > "$INBOX_ANSWER_FILES/zero"`}, Output: OutputText})
	turn := agenttest.Turn("t", agenttest.Messages()["text"])
	turn.Files = kept
	for delta, err := range agent.Handle(t.Context(), turn) {
		if err != nil {
			t.Fatal(err)
		}
		if part := delta.Response.Parts[0]; part.Size != 20<<20 || part.BytesRef.Digest != normalized.Digest(bytes.Repeat([]byte{0}, 20<<20)) {
			t.Errorf("%+v", part)
		}
	}
}

// TestWhatAKilledProcessLeft is removed by the next one, and nothing of one that lives.
func TestWhatAKilledProcessLeft(t *testing.T) {
	directory := t.TempDir()
	living, err := OpenScratch(directory)
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(directory, processPrefix+"killed", "inbox-turn-1")
	foreign := filepath.Join(directory, "foreign")
	for _, one := range []string{killed, foreign, filepath.Join(living.directory, "inbox-turn-2")} {
		if err := os.MkdirAll(one, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	next, err := OpenScratch(directory)
	if err != nil {
		t.Fatal(err)
	}
	for one, want := range map[string]bool{
		filepath.Dir(killed): false, foreign: true, filepath.Join(living.directory, "inbox-turn-2"): true, next.directory: true,
	} {
		if _, err := os.Stat(one); (err == nil) != want {
			t.Errorf("%s: %v", one, err)
		}
	}
	if _, err := disk.Take(next.directory); !errors.Is(err, disk.ErrTaken) {
		t.Errorf("the directory of the living is not locked: %v", err)
	}
	if err := errors.Join(next.Close(), living.Close()); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(directory, processPrefix+"*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

var _ agents.Files = shelf{}
