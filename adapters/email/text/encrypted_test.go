package text

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
)

// opaque returns the CMS message of a fixture.
func opaque(t testing.TB, name string) []byte {
	t.Helper()
	mail, err := os.ReadFile("testdata/mail/" + name + ".eml")
	if err != nil {
		t.Fatal(err)
	}
	fields, body, err := message.Split(mail)
	if err != nil {
		t.Fatal(err)
	}
	return (&message.Entity{Fields: fields, Body: body}).Decode()
}

// TestSignedContent reads both ways in which programs write lengths, and never past the end of what is cut off.
func TestSignedContent(t *testing.T) {
	for _, name := range []string{"signed-smime-opaque-der", "signed-smime-opaque-ber"} {
		whole := opaque(t, name)
		content, err := signedContent(whole)
		if err != nil || !bytes.HasPrefix(content, []byte("Content-Type: multipart/mixed")) || !bytes.HasSuffix(content, []byte("--i--\r\n")) {
			t.Errorf("%s: %q, %v", name, content, err)
		}
		for cut := range whole {
			if content, err := signedContent(whole[:cut]); err == nil && !bytes.HasSuffix(content, []byte("--i--\r\n")) {
				t.Fatalf("%s cut at %d: %q", name, cut, content)
			}
		}
	}
	for name, data := range map[string][]byte{
		"encrypted": opaque(t, "encrypted-smime-untyped"), "empty": nil, "deep": bytes.Repeat([]byte{0x24, 0x80}, 100_000),
		"sequences": bytes.Repeat([]byte{0x30, 0x80}, 100_000), "a length beyond the end": {0x30, 0x84, 0xff, 0xff, 0xff, 0xff},
	} {
		if content, err := signedContent(data); err == nil {
			t.Errorf("%s: %q", name, content)
		}
	}
}

// TestSignaturesInSignaturesEnd: a mail of a few kilobytes cannot have itself opened again and again.
func TestSignaturesInSignaturesEnd(t *testing.T) {
	mail := "Content-Type: text/plain\r\n\r\nthe bottom\r\n"
	for range 10 {
		mail = "Content-Type: application/pkcs7-mime; smime-type=signed-data\r\nContent-Transfer-Encoding: base64\r\n\r\n" + emailtest.InLines(base64.StdEncoding.EncodeToString(wrapSigned([]byte(mail))))
	}
	fields, body, err := message.Split([]byte(mail))
	if err != nil {
		t.Fatal(err)
	}
	reader := &contentReader{walk: &message.Parser{}, budget: 2*len(mail) + 64<<10}
	root, err := reader.walk.Parse(fields, body, 0)
	if err == nil {
		err = reader.read(context.Background(), root, false)
	}
	if err != nil || reader.unwrapped != maxUnwrapped+1 || joined(reader.texts) != wrappedNotice {
		t.Errorf("%d opened, %q, %v", reader.unwrapped, joined(reader.texts), err)
	}
}

// wrapSigned writes the part of a SignedData that is read.
func wrapSigned(content []byte) []byte {
	element := func(tag byte, pieces ...[]byte) []byte {
		inner := bytes.Join(pieces, nil)
		return append([]byte{tag, 0x84, byte(len(inner) >> 24), byte(len(inner) >> 16), byte(len(inner) >> 8), byte(len(inner))}, inner...)
	}
	return element(tagSequence, element(tagObject, oidSignedData), element(tagExplicit, element(tagSequence,
		element(0x02, []byte{1}), element(0x31), element(tagSequence, element(tagObject, oidData), element(tagExplicit, element(tagOctets, content))))))
}

func FuzzSignedContent(f *testing.F) {
	f.Add(opaque(f, "signed-smime-opaque-der"))
	f.Add(opaque(f, "signed-smime-opaque-ber"))
	f.Add(wrapSigned([]byte("x")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if content, err := signedContent(data); err == nil && len(content) > len(data) {
			t.Errorf("%d bytes of %d", len(content), len(data))
		}
	})
}

func TestSignedContentComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.SliceOfN(rapid.Byte(), 1, 500).Draw(t, "content")
		if got, err := signedContent(wrapSigned(content)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// uuencoded writes a file as uuencode does.
func uuencoded(name string, data []byte) string {
	var out strings.Builder
	out.WriteString("begin 644 " + name + "\n")
	for len(data) > 0 {
		piece := data[:min(45, len(data))]
		data = data[len(piece):]
		out.WriteByte(' ' + byte(len(piece)))
		for at := 0; at < len(piece); at += 3 {
			var three [3]byte
			copy(three[:], piece[at:])
			for _, six := range []byte{three[0] >> 2, three[0]<<4&0x3f | three[1]>>4, three[1]<<2&0x3f | three[2]>>6, three[2] & 0x3f} {
				if six == 0 {
					six = 0x40
				}
				out.WriteByte(' ' + six)
			}
		}
		out.WriteByte('\n')
	}
	return out.String() + "`\nend"
}

func TestEncodedFilesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "data")
		rest, files := withoutEncoded("above\n" + uuencoded("a b.bin", data) + "\nbelow")
		if rest != "above\n[a b.bin]\nbelow" || len(files) != 1 || files[0].name != "a b.bin" || !bytes.Equal(files[0].data, data) {
			t.Errorf("%q, %+v", rest, files)
		}
	})
}

func FuzzEncodedFiles(f *testing.F) {
	f.Add("above\n" + uuencoded("x", []byte("some data")) + "\nbelow")
	f.Add("begin 644 x\nend\nbegin 644 y\n#86)C\n`\nend")
	f.Add(strings.Repeat("begin 644 x\n#86)C\n", 50))
	f.Fuzz(func(t *testing.T, text string) {
		rest, files := withoutEncoded(text)
		size := len(rest)
		for _, file := range files {
			size += len(file.data)
		}
		if len(files) > maxEncodedFiles || len(files) == 0 && rest != text || size > 2*len(text) {
			t.Errorf("%d files, %d bytes of %d", len(files), size, len(text))
		}
	})
}

func FuzzArmour(f *testing.F) {
	f.Add("a\n" + pgpSigned + "\nHash: x\n\ntext\n" + pgpSignature + "\nx\n-----END PGP SIGNATURE-----\nb")
	f.Add(pgpMessage + "\nx\n-----END PGP MESSAGE-----\n" + pgpKey)
	f.Fuzz(func(t *testing.T, text string) {
		var got string
		if took, most := processorTime(func() { got, _ = withoutArmour(text) }), 5*time.Millisecond+time.Duration(len(text))*time.Microsecond; took > most {
			t.Errorf("%d bytes took %v", len(text), took)
		}
		if len(got) > len(text)+len(text)/8+len(signedNotice)+8 {
			t.Errorf("%d bytes of %d", len(got), len(text))
		}
	})
}

// TestHostileWrappingsCostLittle: blocks that never end are looked for once.
func TestHostileWrappingsCostLittle(t *testing.T) {
	for _, line := range []string{pgpMessage + "\n", pgpKey + "\n", pgpSigned + "\n", pgpSigned + "\n\n", "begin 644 x\n", "begin 644 x\n#86)C\n", pgpSigned + "\n\n" + pgpSignature + "\n"} {
		text := strings.Repeat(line, maxTextBytes/len(line))
		if took := processorTime(func() { withoutEncoded(text); withoutArmour(text) }); took > 256*time.Millisecond {
			t.Errorf("256 KiB of %q took %v", line, took)
		}
	}
}
