package text

import (
	"context"
	"encoding/base64"
	"fmt"
	"mime/quotedprintable"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding/htmlindex"
	"pgregory.net/rapid"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/normalized"
)

// told is all that an agent gets of a mail: its texts, and the bytes of its files.
type told struct {
	text  string
	words map[string]bool
	files []string
}

// readWhole reads a mail as the server does.
func readWhole(t testing.TB, mail string) told {
	t.Helper()
	fields, body, err := message.Split([]byte(mail))
	if err != nil {
		t.Fatal(err)
	}
	contents := exchange.Contents{}
	got, err := Read(context.WithoutCancel(t.Context()), fields, body, len(mail), contents)
	if err != nil {
		t.Fatal(err)
	}
	all := told{text: got.Text, words: map[string]bool{}}
	for _, text := range append(got.Forwarded, got.Text) {
		for word := range wordsOf(text) {
			all.words[word] = true
		}
	}
	for _, part := range got.Files {
		all.files = append(all.files, fileBytes(t, part, contents))
	}
	if got.Left > 0 {
		t.Fatalf("%d files were left out", got.Left)
	}
	return all
}

func fileBytes(t testing.TB, part normalized.Part, contents exchange.Contents) string {
	t.Helper()
	if part.BytesRef.Kind == normalized.BytesContentAddressed {
		return string(contents[part.BytesRef.Digest])
	}
	data, err := base64.StdEncoding.DecodeString(part.BytesRef.DataBase64)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// lacks returns a word of a text that is neither in the texts nor in a file.
func (a told) lacks(text string) string {
	for word := range wordsOf(text) {
		if !a.words[word] && !slices.ContainsFunc(a.files, func(file string) bool { return strings.Contains(file, word) }) {
			return word
		}
	}
	return ""
}

// TestContentsNeverVanish has mails whose words once were in no part of the message.
func TestContentsNeverVanish(t *testing.T) {
	multipart := func(kind string, parts ...string) string {
		return "Content-Type: multipart/" + kind + "; boundary=" + kind[:3] + "\n\n--" + kind[:3] + "\n" + strings.Join(parts, "\n--"+kind[:3]+"\n") + "\n--" + kind[:3] + "--\n"
	}
	plain := func(words string) string { return "Content-Type: text/plain; charset=utf-8\n\n" + words }
	page := func(words string) string { return "Content-Type: text/html; charset=utf-8\n\n" + words }
	const pdf = "Content-Type: application/pdf\n\n%PDF-1.4 numbers"
	for _, row := range []struct {
		name, mail, text string
		files            []string
	}{
		{"iso-8859-1 with letters of Windows", "Content-Type: text/plain; charset=iso-8859-1\n\n\x80 20 \x96 \x93all\x94", "€ 20 – “all”", nil},
		{"ms949", "Content-Type: text/plain; charset=ms949\n\n\xc7\xd1", "한", nil},
		{"iso-2022-kr", "Content-Type: text/plain; charset=iso-2022-kr\n\n\x1b$)C\n\x0eGQ\x0f", "한", nil},
		{"utf-7", "Content-Type: text/plain; charset=utf-7\n\nHi +ZeVnLA-", "Hi 日本", nil},
		{"HTML that names its charset itself", "Content-Type: text/html\n\n<meta charset=koi8-r><p>\xf0\xd2\xc9", "При", nil},
		{"two plain texts as forms of one", multipart("alternative", plain("the first"), plain("something else")), "the first\n\nsomething else", nil},
		{"the same plain text twice", multipart("alternative", plain("the first words"), plain("the first words")), "the first words", nil},
		{"a text in a mixed form beside a file", multipart("alternative", multipart("mixed", plain("the text")), pdf), "the text", []string{"%PDF-1.4 numbers"}},
		{"a text in a related form beside a file", multipart("alternative", pdf, multipart("related", plain("the text"))), "the text", []string{"%PDF-1.4 numbers"}},
		{"HTML with the words of the text", multipart("alternative", plain("All *the* words <https://x.test>"), page("<title>x</title><p>All <b>the</b> wo<i>rds</i>")), "All *the* words <https://x.test>", nil},
		{"HTML that says more", multipart("alternative", plain("Dear Bob"), page("<p>Dear Bob, the table says 42")), "Dear Bob", []string{"<p>Dear Bob, the table says 42"}},
		{"Markdown beside HTML", multipart("alternative", "Content-Type: text/markdown\n\n**All** words", page("<b>All</b> words")), "**All** words", nil},
		{"a form that few programs know", multipart("alternative", "Content-Type: text/enriched\n\n<bold>All</bold> words", pdf), "<bold>All</bold> words", []string{"<bold>All</bold> words", "%PDF-1.4 numbers"}},
		{"a type without its semicolon", "Content-Type: text/plain charset=utf-8\n\nGrüße", "Grüße", nil},
		{"a type the wrong way round", "Content-Type: plain/text\n\nthe text", "the text", nil},
		{"a type that no one has", "Content-Type: utf-8\n\nthe text", "the text", nil},
		{"a multipart of any kind", "Content-Type: multipart/*; boundary=x\n\n--x\n\nthe text\n--x--", "the text", nil},
		{"an encoded multipart", "Content-Type: multipart/mixed; boundary=x\nContent-Transfer-Encoding: base64\n\n" + base64.StdEncoding.EncodeToString([]byte("--x\r\n\r\nthe text\r\n--x--\r\n")), "the text", nil},
		{"Markdown", "Content-Type: text/markdown\n\n# The text", "# The text", nil},
		{"another kind of text", "Content-Type: text/x-org\n\n* The text", "* The text", []string{"* The text\r\n"}},
		{"a body with a name", "Content-Type: text/plain\nContent-Disposition: inline; filename=mail.txt\n\nthe text", "the text", []string{"the text\r\n"}},
		{"a body that is a file", "Content-Type: text/plain\nContent-Disposition: attachment; filename=mail.txt\n\nthe text", "the text", []string{"the text\r\n"}},
		{"a named text beside another", multipart("mixed", plain("the text"), "Content-Disposition: inline; filename=a.txt\n\nnotes"), "the text", []string{"notes"}},
		{"HTML behind its pictures", multipart("related", "Content-Type: image/gif\n\nGIF89a", page("<p>the text")), "the text", []string{"GIF89a", "<p>the text"}},
		{"base64 that is none", "Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\nPlease send the blue lamp.", "Please send the blue lamp.", nil},
		{"an armoured message between words", plain("Look:\n-----BEGIN PGP MESSAGE-----\n\nabc\n-----END PGP MESSAGE-----\nAnn"), "Look:\n" + armourNotice + "\nAnn", []string{"-----BEGIN PGP MESSAGE-----\n\nabc\n-----END PGP MESSAGE-----\n"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := readWhole(t, strings.ReplaceAll(row.mail+"\n", "\n", "\r\n"))
			for i := range got.files {
				if !slices.Contains(row.files, got.files[i]) {
					got.files[i] = strings.TrimRight(got.files[i], "\r\n")
				}
			}
			if got.text != row.text || !slices.Equal(got.files, row.files) {
				t.Errorf("%q and files %q; want %q and %q", got.text, got.files, row.text, row.files)
			}
		})
	}
}

// TestLongTextsAreFilesAsWell: what is cut off a text is in the message still.
func TestLongTextsAreFilesAsWell(t *testing.T) {
	for kind, line := range map[string]string{"text/plain": "one line of words\r\n", "text/html": "<p>one line of words</p>\r\n"} {
		body := strings.Repeat(line, 800<<10/len(line)) + "<p>the end"
		got := readWhole(t, "Content-Type: "+kind+"\r\n\r\n"+body)
		if len(got.files) != 1 || got.files[0] != body || !strings.Contains(got.text, "original mail is kept") {
			t.Errorf("%s: %d files, text %.80q", kind, len(got.files), got.text)
		}
	}
}

// tree writes MIME trees and knows what their leaves say.
type tree struct {
	*rapid.T
	number int
	leaves []string
}

func (r *tree) node(depth int) string {
	r.number++
	if depth > 3 || len(r.leaves) > 12 || depth > 0 && rapid.IntRange(0, 2).Draw(r.T, "leaf") > 0 {
		return r.leaf()
	}
	boundary := fmt.Sprintf("b%d", r.number)
	kind := rapid.SampledFrom([]string{"mixed", "alternative", "alternative", "related", "*", "report", "signed", "x-own", "parallel"}).Draw(r.T, "multipart")
	var out strings.Builder
	fmt.Fprintf(&out, "Content-Type: multipart/%s; boundary=%s\r\n\r\n", kind, boundary)
	for range rapid.IntRange(1, 3).Draw(r.T, "children") {
		out.WriteString("--" + boundary + "\r\n" + r.node(depth+1) + "\r\n")
	}
	return out.String() + "--" + boundary + "--\r\n"
}

func (r *tree) leaf() string {
	words := rapid.SampledFrom([]string{"Blue lamp, please", "Grüße", "<b>Table</b> of lamps", "Dear Bob\r\n\r\nTwo lamps.", "same words"}).Draw(r.T, "words")
	if rapid.Bool().Draw(r.T, "own") {
		words += fmt.Sprintf(" leaf%dx", r.number)
	}
	kind := rapid.SampledFrom([]string{
		"text/plain", "text/plain", "text/html", "text/html", "text/markdown", "text/csv", "application/pdf", "plain/text", "text/enriched", "image/png", "application/octet-stream", "text", "odd type",
	}).Draw(r.T, "type")
	charset := rapid.SampledFrom([]string{"utf-8", "iso-8859-1", "windows-1252", "utf-7", "koi8-u", ""}).Draw(r.T, "charset")

	body := words
	switch charset {
	case "utf-7", "koi8-u":
		body = strings.NewReplacer("ü", "ue", "ß", "ss").Replace(words)
	case "iso-8859-1", "windows-1252":
		found, err := htmlindex.Get(charset)
		if err != nil {
			r.Fatal(err)
		}
		if body, err = found.NewEncoder().String(words); err != nil {
			r.Fatal(err)
		}
	}
	r.leaves = append(r.leaves, body)
	if charset != "" {
		kind += rapid.SampledFrom([]string{"; charset=", "; Charset=", " charset="}).Draw(r.T, "parameter") + charset
	}
	return "Content-Type: " + kind + "\r\n" + r.disposition() + r.encoded(body)
}

func (r *tree) disposition() string {
	return rapid.SampledFrom([]string{"", "", "", "Content-Disposition: inline\r\n", "Content-Disposition: attachment; filename=a.txt\r\n", "Content-Disposition: inline; filename=a.txt\r\n"}).Draw(r.T, "disposition")
}

func (r *tree) encoded(body string) string {
	switch rapid.IntRange(0, 3).Draw(r.T, "encoding") {
	case 0:
		return "Content-Transfer-Encoding: base64\r\n\r\n" + base64.StdEncoding.EncodeToString([]byte(body))
	case 1:
		var out strings.Builder
		w := quotedprintable.NewWriter(&out)
		_, _ = w.Write([]byte(body))
		_ = w.Close()
		return "Content-Transfer-Encoding: quoted-printable\r\n\r\n" + out.String()
	}
	return "\r\n" + body
}

// TestEveryLeafIsInTheMessage: each word of each leaf of any tree is there, as text or as a file.
func TestEveryLeafIsInTheMessage(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		made := &tree{T: r}
		mail := "Subject: x\r\n" + made.node(0)
		got := readWhole(t, mail)
		for _, leaf := range made.leaves {
			if slices.ContainsFunc(got.files, func(file string) bool { return strings.TrimSpace(file) == strings.TrimSpace(leaf) }) {
				continue
			}
			if word := got.lacks(strings.NewReplacer("<b>", " ", "</b>", " ").Replace(message.UTF8([]byte(leaf)))); word != "" {
				r.Fatalf("%q of %q is lost; text %q, files %q of\n%s", word, leaf, got.text, got.files, mail)
			}
		}
	})
}

// TestEveryLeafOfTheCorpusIsInTheMessage reads the leaves of real mails on its own.
func TestEveryLeafOfTheCorpusIsInTheMessage(t *testing.T) {
	files, err := filepath.Glob("testdata/mail/*.eml")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d mails, %v", len(files), err)
	}
	for _, file := range files {
		mail, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		everyLeafIsIn(t, filepath.Base(file), string(mail))
	}
}

// armourHeader is what goes when a signed text is read (RFC 9580, section 7).
var armourHeader = regexp.MustCompile(regexp.QuoteMeta(pgpSigned) + `\s*(\nHash: [A-Z0-9, ]+)*\n`)

func everyLeafIsIn(t testing.TB, name, mail string) {
	t.Helper()
	fields, body, err := message.Split([]byte(mail))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	root, err := new(message.Parser).Parse(fields, body, 0)
	if err != nil {
		return // refused, and its sender hears of it
	}
	got := readWhole(t, mail)
	for _, leaf := range leavesOf(root) {
		decoded := string(leaf.Decode())
		if slices.ContainsFunc(got.files, func(file string) bool { return file == decoded }) {
			continue
		}
		text := readText(leaf)
		if leaf.Media == "text/html" {
			text = shownText(sourceOf(leaf))
		}
		if rest, files := withoutEncoded(text); len(files) > 0 {
			text = rest // it stands decoded in a file
		}
		if word := got.lacks(armourHeader.ReplaceAllString(text, "")); word != "" {
			t.Errorf("%s: %q of a leaf %s is lost", name, word, leaf.Media)
		}
	}
}

func leavesOf(node *message.Entity) (leaves []*message.Entity) {
	if len(node.Children) == 0 {
		return []*message.Entity{node}
	}
	for _, child := range node.Children {
		leaves = append(leaves, leavesOf(child)...)
	}
	return leaves
}
