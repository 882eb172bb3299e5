package email

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
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
	files, err := filepath.Glob("testdata/mail/*.eml")
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
		golden(t, filepath.Join("mail", name+".golden"), show(all[before].Message.Parts))
		if err := normalized.Validate(all[before].Message, normalized.DefaultLimits()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLargeFilesGoToTheBlobStore(t *testing.T) {
	s := start(t, nil)
	data := bytes.Repeat([]byte("0123456789"), 30<<10)
	body := "--x\n\nhere\n--x\nContent-Type: application/zip; name=big.zip\nContent-Transfer-Encoding: base64\n\n" + wrap(base64.StdEncoding.EncodeToString(data)) + "--x--"
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

func wrap(text string) string {
	var out strings.Builder
	for len(text) > 76 {
		out.WriteString(text[:76] + "\n")
		text = text[76:]
	}
	return out.String() + text + "\n"
}

func TestTextIsCut(t *testing.T) {
	for _, parts := range []int{1, 5} { // the limit is for all of them together
		c := &contentReader{}
		for range parts {
			c.addText(readableText{text: strings.Repeat("é", maxTextBytes/2), mime: normalized.MIMEPlain, own: strings.Repeat("o", maxTextBytes)})
		}
		c.addText(readableText{text: "end", mime: normalized.MIMEPlain})
		for _, text := range []string{joined(c.texts), joined(c.own)} {
			if len(text) > maxTextBytes+100 || !strings.HasSuffix(text, "the original mail is kept.]") {
				t.Errorf("%d bytes, end %q", len(text), text[len(text)-50:])
			}
		}
	}
}

func TestHarmlessTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching("[ -~\n\t]{0,40}"), rapid.StringMatching("[ -~]{0,20}[\x00-\x7f][ -~]{0,20}")).Draw(t, "text")
		want := !strings.ContainsFunc(text, func(r rune) bool { return r >= 0x7f || r < ' ' && r != '\n' && r != '\t' })
		if got := harmless(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	})
}

// TestHostileStructuresAreCheap guards against the quadratic and worse cases. It counts memory: what copies for every element
// takes thousands of bytes for each byte here. The bounds of time are generous.
func TestHostileStructuresAreCheap(t *testing.T) {
	began := time.Now()
	fields, body, err := message.Split([]byte(nested(20_000)))
	if err == nil {
		_, err = (&message.Parser{}).Parse(fields, body, 0, "text/plain")
	}
	if err == nil {
		t.Error("20,000 levels are accepted")
	}
	for name, text := range map[string]string{
		"divs":       strings.Repeat("<div>", 200_000),
		"tables":     strings.Repeat("<table><tr><td>", 50_000),
		"attributes": "<p " + strings.Repeat("a=b ", 100_000) + ">x",
		"quotes":     strings.Repeat("<blockquote>x", 20_000),
		"lists":      strings.Repeat("<ul><li>x", 20_000),
		"bold":       strings.Repeat("<b>x", 50_000),
		"links":      strings.Repeat(`<a href="https://x.test">x`, 20_000),
		"stars":      strings.Repeat("*_`[", 100_000),
		"entities":   strings.Repeat("&lt;", 100_000),
	} {
		one := time.Now()
		if took := allocated(func() { fromHTML(text) }) / uint64(len(text)); took > 300 {
			t.Errorf("%s took %d bytes of memory for each of its own", name, took)
		}
		if took := time.Since(one); took > 5*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("hostile input took %s", took)
	}
}

// allocated gives the bytes that a function takes from memory.
func allocated(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestUnflow(t *testing.T) {
	for in, want := range map[string]string{
		"a \nb":         "a b",
		"a\nb":          "a\nb",
		"> a \n> b":     "> a b",
		"> a \nb":       "> a \nb",
		">> a \n> b":    ">> a \n> b",
		"a \n-- \nb":    "a \n-- \nb",
		" > not quoted": "> not quoted",
		"":              "",
	} {
		if got := unflow(in, false); got != want {
			t.Errorf("%q: %q; want %q", in, got, want)
		}
	}
	if got := unflow("a \r\nb", true); got != "ab" {
		t.Errorf("delsp: %q", got)
	}
}

func TestCleanName(t *testing.T) {
	for in, want := range map[string]string{
		"../../etc/passwd": "passwd", `C:\x\y.doc`: "y.doc", "...hidden": "hidden", "a\r\nb.txt": "a b.txt", "rep\u202efdp.exe": "repfdp.exe", "": "",
	} {
		if got := cleanName(in); got != want {
			t.Errorf("%q: %q; want %q", in, got, want)
		}
	}
	if got := cleanName(strings.Repeat("ü", 300)); len(got) > maxNameBytes {
		t.Errorf("%d bytes", len(got))
	}
}

func FuzzMIME(f *testing.F) {
	files, _ := filepath.Glob("testdata/mail/*.eml")
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
		size := len(body)
		for _, one := range fields {
			size += len(one.Raw)
		}
		if size > len(mail) {
			t.Fatalf("header and body have %d of %d bytes", size, len(mail))
		}
		walk := &message.Parser{}
		root, err := walk.Parse(fields, body, 0, "text/plain")
		if err != nil {
			return
		}
		reader := &contentReader{walk: walk, budget: 2*len(mail) + 64<<10}
		if err := reader.read(t.Context(), root, false); err != nil && !fault.Is(err, fault.Malformed) {
			t.Fatal(err)
		}
		parts, err := messageParts(reader.result, fields.Decoded("Subject"), "")
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

// FuzzFileName reads names as they stand in Content-Disposition.
func FuzzFileName(f *testing.F) {
	f.Add(`attachment (x); filename==?utf-8?b?w7w?=; filename=a b (1).txt`)
	f.Add(`attachment; filename*0*=utf-8''%C3; filename*1*=%BC..%2f`)
	f.Fuzz(func(t *testing.T, text string) {
		_, params := message.MediaType(text, "text/plain")
		if name := cleanName(message.DecodeWords(params["filename"])); len(name) > maxNameBytes || !utf8.ValidString(name) || strings.ContainsAny(name, "/\r\n\x00") {
			t.Errorf("name %q", name)
		}
	})
}

func FuzzUnflow(f *testing.F) {
	f.Add("a \n> b \n>> c\n-- \n", true)
	f.Fuzz(func(t *testing.T, text string, deleteSpace bool) {
		if got := unflow(text, deleteSpace); len(got) > 2*len(text)+1 {
			t.Errorf("%d bytes of %d", len(got), len(text))
		}
	})
}
