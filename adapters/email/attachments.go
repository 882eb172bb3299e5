package email

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/adapters/email/message"
	"inbox/internal/fault"
	"inbox/normalized"
)

// addFile keeps a leaf as a file part.
func (r *contentReader) addFile(ctx context.Context, node *message.Entity) error {
	if len(r.result.files) >= maxFiles {
		r.result.left++
		return nil
	}
	body := node.Decode()
	if r.budget -= len(body); r.budget < 0 {
		return fault.InField("body", "the decoded files are larger than the mail")
	}
	ref, err := r.keep(ctx, body)
	if err != nil {
		return err
	}
	r.result.files = append(r.result.files, normalized.Part{
		Kind: normalized.PartFile, MIME: fileType(node, body), Name: fileName(node), Size: int64(len(body)), BytesRef: ref, ContentID: contentID(node.Fields),
	})
	return nil
}

// contentID returns by which name the text of a mail refers to a part (RFC 2392); "" = by none.
func contentID(fields message.Header) string {
	id := strings.Trim(fields.Get("Content-ID"), " \t<>")
	if len(id) > message.MaxIDBytes || strings.ContainsFunc(id, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return ""
	}
	return id
}

// addFound keeps a file that stands inside of another part, which is kept as well. What is over a bound is left out: the
// part around it has it.
func (r *contentReader) addFound(ctx context.Context, part normalized.Part, body []byte) error {
	if len(r.result.files) >= maxFiles || len(body) > r.budget {
		r.result.left++
		return nil
	}
	ref, err := r.keep(ctx, body)
	if err != nil {
		return err
	}
	r.budget -= len(body)
	part.Kind, part.Size, part.BytesRef = normalized.PartFile, int64(len(body)), ref
	r.result.files = append(r.result.files, part)
	return nil
}

func (r *contentReader) keep(ctx context.Context, body []byte) (*normalized.BytesRef, error) {
	if len(body) <= normalized.MaxInlineBytes && r.inline+len(body) <= maxInlineTotal {
		r.inline += len(body)
		return &normalized.BytesRef{Kind: normalized.BytesInline, DataBase64: base64.StdEncoding.EncodeToString(body)}, nil
	}
	digest, _, err := r.blobs.Put(ctx, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("store attachment: %w", err)
	}
	return &normalized.BytesRef{Kind: normalized.BytesContentAddressed, Algo: "sha256", Digest: digest}, nil
}

// fileType is the declared type, unless it says nothing or the bytes say that it is wrong: agents show pictures to models
// and play sounds by their type. What was declared stays in the original.
func fileType(node *message.Entity, body []byte) string {
	sniffed, _ := message.MediaType(http.DetectContentType(body), "application/octet-stream")
	armour := armourType(body)
	switch {
	case armour != "" && (node.Media == "" || node.Media == "application/octet-stream" || node.Media == "text/plain"):
		return armour // it is ASCII, and no text
	case node.Media == "" || node.Media == "application/octet-stream":
		return sniffed
	case contradicts(node.Media, sniffed, body):
		return sniffed
	}
	return node.Media
}

// contradicts says whether bytes cannot be what was declared. Types that the sniffer does not know prove nothing, unless
// they are programs.
func contradicts(declared, sniffed string, body []byte) bool {
	kind, _, _ := strings.Cut(declared, "/")
	found, _, _ := strings.Cut(sniffed, "/")
	if kind != "image" && kind != "audio" && kind != "video" && declared != "application/pdf" || len(body) == 0 {
		return false
	}
	if program(body) {
		return true
	}
	switch {
	case sniffed == "application/octet-stream", found == "text" && declared == "image/svg+xml", sniffed == declared:
		return false
	case sniffed == "application/ogg", found == "video" && kind == "audio", found == "audio" && kind == "video": // one container for both
		return kind != "audio" && kind != "video"
	}
	return kind != found
}

func program(body []byte) bool {
	for _, start := range []string{"MZ", "\x7fELF", "#!", "\xfe\xed\xfa", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe"} {
		if bytes.HasPrefix(body, []byte(start)) {
			return true
		}
	}
	return false
}

// fileName gives a harmless name: the last path element without controls, disguises and leading dots.
func fileName(node *message.Entity) string {
	_, disposition := message.MediaType(node.Fields.Get("Content-Disposition"), "inline")
	name := disposition["filename"]
	if name == "" {
		name = node.Params["name"]
	}
	if name == "" && strings.HasPrefix(node.Media, "message/") {
		name = enclosedName(node)
	}
	return cleanName(message.DecodeWords(name))
}

func enclosedName(node *message.Entity) string {
	fields, _, err := message.Split(node.Decode())
	if err != nil || fields.Decoded("Subject") == "" {
		return "mail.eml"
	}
	return strings.NewReplacer("/", " ", "\\", " ", ":", " ").Replace(fields.Decoded("Subject")) + ".eml"
}

func cleanName(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.TrimLeft(message.Clean(name, maxNameBytes), ". ")
	for len(name) > maxNameBytes {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

func digestOf(mail []byte) string {
	sum := sha256.Sum256(mail)
	return hex.EncodeToString(sum[:])
}
