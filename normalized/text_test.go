package normalized

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/policypart"
)

func mixedParts() []Part {
	return []Part{
		Text("Hello *you*,\n1. see below"),
		Markdown("It is **done**."),
		{Kind: PartFile, MIME: "image/png", Name: "cat.png", Size: 12 << 10, Alt: "a cat", BytesRef: At("https://a.test/cat.png")},
		{Kind: PartFile, MIME: "application/pdf", Name: "bill.pdf", Size: 3 << 20, BytesRef: Stored(Digest(nil))},
		{Kind: PartLink, URL: "https://a.test/x_y", Title: "A [page]", Description: "About it"},
		{Kind: PartToolCall, ID: "1", Name: "secret"},
		unknownPart(),
		Text(" \n "),
		{Kind: PartPolicy, Policy: &policypart.Part{Kind: "forbidden", Title: "No", Message: "Not today.", URL: "https://here.test/p", ActionLabel: "Why"}},
	}
}

func TestPlainText(t *testing.T) {
	const want = "Hello *you*,\n1. see below\n\nIt is **done**.\n\n" +
		"Attachment: cat.png (image/png, 12 KiB): a cat\nhttps://a.test/cat.png\n\nAttachment: bill.pdf (application/pdf, 3.0 MiB)\n\n" +
		"A [page]\nhttps://a.test/x_y\nAbout it\n\nNo\n\nNot today.\n\nWhy: https://here.test/p"
	if got := PlainText(mixedParts()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMarkdownText(t *testing.T) {
	const want = "Hello \\*you\\*,  \n1\\. see below\n\nIt is **done**.\n\n" +
		"![a cat](<https://a.test/cat.png>)\n\nAttachment: bill.pdf (application/pdf, 3.0 MiB)\n\n" +
		"[A \\[page\\]](<https://a.test/x_y>)\nAbout it\n\nNo\n\nNot today.\n\nWhy: https://here.test/p"
	if got := MarkdownText(mixedParts()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEscapeMarkdown(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"plain":                  "plain",
		"# no title":             `\# no title`,
		"- no list":              `\- no list`,
		"12) no list":            `12\) no list`,
		"> no quote":             `\> no quote`,
		"snake_case https://a_b": "snake_case https://a_b",
		"_em_ __b__":             `\_em\_ \_\_b\_\_`,
		"a ![x](y) !":            `a \!\[x\](y) !`,
		"<b>&amp;`c`":            "\\<b\\>\\&amp;\\`c\\`",
		"a|b~~c~~":               `a\|b\~\~c\~\~`,
		"    code":               "&nbsp;&nbsp;&nbsp;&nbsp;code",
		"a\\b":                   `a\\b`,
		"a\n\nb\nc":              "a\n\nb  \nc",
		"a\n---":                 "a  \n\\---",
		"a\n===":                 "a  \n\\===",
	} {
		if got := EscapeMarkdown(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestTextMIME: people and libraries write media types in any case and with a charset (RFC 2045, section 5.1; RFC 6838, section 4.2).
func TestTextMIME(t *testing.T) {
	for declared, want := range map[string]string{
		"text/plain": MIMEPlain, "Text/Markdown": MIMEMarkdown, "TEXT/HTML": MIMEHTML, " text/plain ": MIMEPlain,
		"text/plain; charset=utf-8": MIMEPlain, `text/markdown;charset="UTF-8"; variant=GFM`: MIMEMarkdown, `text/html; a="x;y"`: MIMEHTML,
		"text/plain; charset=klingon-8": MIMEPlain, "text/plain;": MIMEPlain, "text/plain; charset": MIMEPlain, "text/plain; format*=utf-8''flowed": MIMEPlain,
		"": "", "text": "", "text/rtf": "", "text/plainer": "", "text/plain, text/html": "", "text / plain": "", "x text/plain": "",
		"text/plain; a=" + strings.Repeat("x", 300): "",
	} {
		got, known := TextMIME(declared)
		if got != want || known != (want != "") {
			t.Errorf("%q is %q, want %q", declared, got, want)
		}

		m := goodMessage()
		m.Parts = []Part{{Kind: PartText, MIME: declared, Content: "x"}}
		if err := Validate(m, DefaultLimits()); (err == nil) != known {
			t.Errorf("%q: %v", declared, err)
		}
		if m.Clean(); known && m.Parts[0].MIME != want {
			t.Errorf("%q is cleaned to %q", declared, m.Parts[0].MIME)
		}

		document := `{"in_reply_to":"m","parts":[{"kind":"text","mime":` + strconv.Quote(declared) + `,"content":"x"}]}`
		read, err := DecodeResponse([]byte(document), DefaultLimits())
		if err != nil || known && read.Parts[0].MIME != want {
			t.Errorf("%q is read as %+v, %v", declared, read.Parts, err)
		}
		part := []byte(`{"kind":"text","content":"x","mime":` + strconv.Quote(declared) + `}`)
		if err := validates(compiled(t, "part.json"), part); known && err != nil {
			t.Errorf("the schema refuses %q: %v", declared, err)
		}
	}
	if err := validates(compiled(t, "part.json"), []byte(`{"kind":"text","content":"x","mime":"text/rtf"}`)); err == nil {
		t.Error("the schema accepts text/rtf")
	}
}

func TestClean(t *testing.T) {
	m := goodMessage()
	m.Sender.DisplayName = "A\nl\x00ice " + strings.Repeat("ä", 2000)
	m.Sender.Profile = &SenderProfile{URL: "javascript:alert(1)", Avatar: &Image{URL: "data:x"}, DisplayName: "\x1b[31mred"}
	profile := m.Sender.Profile
	m.Parts = []Part{
		Text(" \r\n"), Text("a\r\nb\tc\x00\x1b\u0085\xffd"),
		{Kind: PartFile, MIME: "image/png", BytesRef: Stored(Digest(nil)), Name: `..\..\etc/pass` + "\u202ew\u2066d\u200e\n", Alt: "x\x07"},
		{Kind: PartFile, MIME: "image/png", BytesRef: Stored(Digest(nil)), Name: ".."},
		{Kind: PartLink, URL: "https://a.test", Title: "a\nb"},
	}
	original := m.Parts
	m.Clean()
	if found := Violations(m, DefaultLimits()); len(found) > 0 {
		t.Error(found)
	}
	switch {
	case len(m.Parts) != 4, m.Parts[0].Content != "a\nb\tcd", m.Parts[1].Name != "passwd", m.Parts[1].Alt != "x", m.Parts[2].Name != "", m.Parts[3].Title != "a b":
		t.Errorf("%+v", m.Parts)
	case !strings.HasPrefix(m.Sender.DisplayName, "A lice ä") || len(m.Sender.DisplayName) > longestName:
		t.Errorf("%q", m.Sender.DisplayName)
	case m.Sender.Profile.URL != "" || m.Sender.Profile.Avatar != nil || m.Sender.Profile.DisplayName != "[31mred":
		t.Errorf("%+v", m.Sender.Profile)
	case profile.URL == "" || original[1].Content == m.Parts[0].Content:
		t.Error("Clean changed what others may hold")
	}
}

func TestCleanResponse(t *testing.T) {
	r := Response{Parts: []Part{Text("a\r\nb"), Text("  ")}, Error: &ResponseError{Code: "a", Message: "b\x00"}}
	r.Clean()
	if len(r.Parts) != 1 || r.Parts[0].Content != "a\nb" || r.Error.Message != "b" {
		t.Errorf("%+v", r)
	}
}

func TestBytesRef(t *testing.T) {
	b := Inline([]byte("hello"))
	content, err := b.Bytes()
	if err != nil || string(content) != "hello" || b.Check(DefaultLimits()) != nil {
		t.Error(content, err, b.Check(DefaultLimits()))
	}
	if _, err := Stored(Digest(nil)).Bytes(); err == nil {
		t.Error("stored bytes are not inline")
	}
	stored := Stored(Digest([]byte("hello")))
	if !stored.Matches([]byte("hello")) || stored.Matches([]byte("hallo")) || !At("https://a.test/").Matches(nil) {
		t.Error("Matches")
	}
	if empty := Inline(nil); empty.Check(DefaultLimits()) != nil {
		t.Error("an empty file is a file")
	}
}

// kept keeps bytes in memory; nil fails.
type kept map[string][]byte

func (k kept) Put(_ context.Context, r io.Reader) (string, int64, error) {
	if k == nil {
		return "", 0, errors.New("the disk is full")
	}
	content, err := io.ReadAll(r)
	k[Digest(content)] = content
	return Digest(content), int64(len(content)), err
}

// TestContentOfFiles: what is small travels with the message, what is large is kept once and named by its digest.
func TestContentOfFiles(t *testing.T) {
	file := Part{Kind: PartFile, MIME: "image/png", Name: "dot.png"}
	for size, want := range map[int]string{0: BytesInline, 1: BytesInline, MaxInlineBytes: BytesInline, MaxInlineBytes + 1: BytesContentAddressed} {
		content, store := bytes.Repeat([]byte("x"), size), kept{}
		part, err := file.Carrying(t.Context(), content, store)
		if err != nil || part.BytesRef.Kind != want || part.Size != int64(size) || part.Name != file.Name || file.BytesRef != nil {
			t.Errorf("%d bytes: %+v, %v", size, part, err)
		}
		if got, err := part.BytesRef.Bytes(); want == BytesInline && (err != nil || !bytes.Equal(got, content) || len(store) != 0) {
			t.Errorf("%d bytes inline: %v, %d kept", size, err, len(store))
		}
		if want == BytesContentAddressed && !bytes.Equal(store[part.BytesRef.Digest], content) {
			t.Errorf("%d bytes are not kept", size)
		}
	}
	if _, err := file.Carrying(t.Context(), make([]byte, MaxInlineBytes+1), kept(nil)); err == nil {
		t.Error("a file that could not be kept was carried")
	}
}

// TestSurfaceStaysWithinItsBounds: the one who fills To and Cc with what a stranger listed never makes a message that is refused.
func TestSurfaceStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		surface := Surface{Channel: "email", Subject: strings.Repeat("ä", rapid.IntRange(0, 998).Draw(t, "subject"))}
		listed := 0
		for _, list := range []*[]SurfaceRecipient{&surface.To, &surface.Cc} {
			for range rapid.IntRange(0, 150).Draw(t, "recipients") {
				listed++
				surface.AddRecipients(list, SurfaceRecipient{Address: drawAddress(t), Name: strings.Repeat(`"`, rapid.IntRange(0, 128).Draw(t, "name"))})
			}
		}
		message := goodMessage()
		message.Surface = &surface
		if err := Validate(message, DefaultLimits()); err != nil {
			t.Fatal(err)
		}
		if got := len(surface.To) + len(surface.Cc) + surface.Omitted; got != listed {
			t.Fatalf("%d of %d recipients are listed or counted", got, listed)
		}
	})
	var full Surface
	full.AddRecipients(&full.To, make([]SurfaceRecipient, 130)...)
	if len(full.To) != MaxSurfaceRecipients || full.Omitted != 30 {
		t.Errorf("%d listed, %d counted", len(full.To), full.Omitted)
	}
}

// TestSurfaceKeepsMembersOfOtherChannels: a surface that another channel wrote comes back as it was.
func TestSurfaceKeepsMembersOfOtherChannels(t *testing.T) {
	const document = `{"channel":"activitypub","url":"https://a.test/@ann/1","audience":"direct","mentions":["@bob@b.test"]}`
	r := newReader([]byte(document))
	var surface Surface
	readSurface(r, &surface)
	w := newWriter(nil)
	w.surface(&surface)
	if err := r.end(); err != nil || string(w.buf) != document {
		t.Errorf("%s, %v", w.buf, err)
	}
}
