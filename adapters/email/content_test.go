package email

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/adapters/email/text"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/normalized"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file in testdata, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// show prints parts for golden files.
func show(parts []normalized.Part) []byte {
	var out bytes.Buffer
	for _, part := range parts {
		if part.Kind == normalized.PartText {
			fmt.Fprintf(&out, "== %s\n%s\n", part.MIME, part.Content)
			if part.New != "" {
				fmt.Fprintf(&out, "== new\n%s\n", part.New)
			}
			continue
		}
		if part.Kind == normalized.PartLink {
			fmt.Fprintf(&out, "== link %s %q\n", part.URL, part.Title)
			continue
		}
		data, _ := base64.StdEncoding.DecodeString(part.BytesRef.DataBase64)
		fmt.Fprintf(&out, "== %s %s %q %d bytes: %.40q\n", part.Kind, part.MIME, part.Name, part.Size, data)
		if part.ContentID != "" {
			fmt.Fprintf(&out, "   content id %s\n", part.ContentID)
		}
	}
	return out.Bytes()
}

func TestCorpus(t *testing.T) {
	s := start(t, nil)
	files, err := filepath.Glob("text/testdata/mail/*.eml")
	if err != nil || len(files) < 30 {
		t.Fatalf("corpus: %d files, %v", len(files), err)
	}
	w := s.greet()
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".eml")
		mail, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before := len(s.engine.all())
		w.send("ann@plain.test", []string{"echo@inbox.test"}, string(mail), "250")
		all := s.engine.all()
		if len(all) != before+1 {
			t.Fatalf("%s was not received", name)
		}
		golden(t, filepath.Join("..", "text", "testdata", "mail", name+".golden"), show(all[before].Message.Parts))
		if err := normalized.Validate(all[before].Message, normalized.DefaultLimits()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLargeFilesGoToTheBlobStore(t *testing.T) {
	s := start(t, nil)
	data := bytes.Repeat([]byte("0123456789"), 30<<10)
	body := "--x\n\nhere\n--x\nContent-Type: application/zip; name=big.zip\nContent-Transfer-Encoding: base64\n\n" + emailtest.InLines(base64.StdEncoding.EncodeToString(data)) + "--x--"
	s.greet().send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter(body, "From: a@plain.test", "Content-Type: multipart/mixed; boundary=x"), "250")
	file := s.engine.only(t).Message.Parts[1]
	if file.BytesRef.Kind != normalized.BytesContentAddressed || file.Size != int64(len(data)) || file.Name != "big.zip" {
		t.Fatalf("file %+v", file)
	}
	got, err := readBlob(t.Context(), s.adapter.options.Blobs, file.BytesRef.Digest, 1<<30)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("blob: %d bytes, %v", len(got), err)
	}
}

// FuzzMessageParts brings arbitrary mails into the contract's form.
func FuzzMessageParts(f *testing.F) {
	files, _ := filepath.Glob("text/testdata/mail/*.eml")
	for _, file := range files {
		if mail, err := os.ReadFile(file); err == nil {
			f.Add(mail)
		}
	}
	f.Fuzz(func(t *testing.T, mail []byte) {
		fields, body, err := message.Split(mail)
		if err != nil {
			return
		}
		blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
		if err != nil {
			t.Fatal(err)
		}
		found, err := text.Read(t.Context(), fields, body, len(mail), blobs)
		if err != nil && !fault.Is(err, fault.Malformed) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		parts, err := messageParts(found, fields.Decoded("Subject"), "")
		if err != nil {
			return
		}
		for i := range parts {
			if _, err := json.Marshal(parts[i]); err != nil {
				t.Fatal(err)
			}
		}
	})
}
