package activitypub

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"image"
	_ "image/gif"
	_ "image/jpeg"
	_ "image/png"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/internal/capability"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

const (
	// MediaNamespace is that of the document with the secret of media addresses.
	MediaNamespace = "activitypub.media"
	mediaNamespace = MediaNamespace // "secret" → bytes from which the keys of addresses are made
	mediaWait      = 5 * time.Second
	maxMediaName   = 100
)

// mediaFiles serves the files of answers.
type mediaFiles struct {
	*site
	secret   mediaSecret
	pictures *cache[[2]int] // digest → width and height; 0 = they cannot be read
}

// mediaSecret is loaded once.
type mediaSecret struct {
	mu    sync.Mutex
	value []byte
}

func (m *mediaFiles) loadSecret() ([]byte, error) {
	m.secret.mu.Lock()
	defer m.secret.mu.Unlock()
	if m.secret.value != nil {
		return m.secret.value, nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), mediaWait)
	defer cancel()
	fresh := make([]byte, 32)
	if _, err := rand.Read(fresh); err != nil {
		return nil, err
	}

	current, _, err := m.options.State.PutIfAbsent(ctx, mediaNamespace, "secret", fresh, time.Time{})
	if err != nil {
		return nil, err
	}

	m.secret.value = current
	return current, nil
}

// keyClaim opens one file of one reply to its readers.
func keyClaim(replyID, digest string) capability.Claim {
	return capability.Claim{Purpose: "file of an answer", Who: "readers of " + replyID, What: digest}
}

// olderKey is what was made before decision 0137. Other servers and people have it as long as the row of the reply lives.
func olderKey(replyID, digest string) capability.Claim {
	return capability.Claim{What: replyID + "\n" + digest, Form: capability.Long, Former: true}
}

// opens reports whether a key opens the file of a reply; not when the secret cannot be had just now.
func (m *mediaFiles) opens(replyID, digest, key string) bool {
	secret, err := m.loadSecret()
	return err == nil && (capability.Valid(secret, keyClaim(replyID, digest), key) || capability.Valid(secret, olderKey(replyID, digest), key))
}

// URL is the address of a file that we keep. It names the reply that the file belongs to: a digest alone opens
// nothing, and with the reply its files go. An answer that not everyone may read adds a key that no one can guess.
func (m *mediaFiles) URL(reply exchange.Reply, part normalized.Part) string {
	digest := digestOfPart(part)
	if digest == "" || part.BytesRef.Kind == normalized.BytesContentAddressed && m.options.Blobs == nil {
		return ""
	}

	query := url.Values{"reply": {reply.ID}}
	if !m.published(reply) {
		secret, err := m.loadSecret()
		if err != nil {
			return ""
		}
		query.Set("key", capability.Mint(secret, keyClaim(reply.ID, digest)))
	}

	return m.base + "/media/" + digest + "/" + url.PathEscape(mediaName(part)) + "?" + query.Encode()
}

func digestOfPart(part normalized.Part) string {
	if part.BytesRef == nil {
		return ""
	}
	switch part.BytesRef.Kind {
	case normalized.BytesContentAddressed:
		return part.BytesRef.Digest
	case normalized.BytesInline:
		content, err := part.BytesRef.Bytes()
		if err != nil {
			return ""
		}
		sum := sha256.Sum256(content)
		return hex.EncodeToString(sum[:])
	}

	return ""
}

// mediaName makes a plain file name: what an agent calls a file must not steer where a browser keeps it.
func mediaName(part normalized.Part) string {
	name := path.Base(strings.ReplaceAll(part.Name, `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if notetext.Unwanted(r) || strings.ContainsRune(`/\"'<>|?*:;%`, r) || r == '\n' || r == '\r' || r == '\t' {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "_"))
	if name = clip.Bytes(strings.Trim(name, ". "), maxMediaName); name != "" && name != "_" {
		return name
	}
	if endings, err := mime.ExtensionsByType(part.MIME); err == nil && len(endings) > 0 {
		return "file" + endings[0]
	}
	return "file"
}

// safeMedia are the types that a browser may show. Everything else is given as bytes to keep: what an agent made of a
// stranger's words must not run as a page of this server.
var safeMedia = map[string]bool{
	"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true, "image/avif": true, "image/apng": true,
	"video/mp4": true, "video/webm": true, "video/ogg": true, "video/quicktime": true,
	"audio/mpeg": true, "audio/mp4": true, "audio/ogg": true, "audio/wav": true, "audio/webm": true, "audio/flac": true, "audio/aac": true,
	"text/plain": true,
}

// serve returns a file of an answer to those who may read the answer.
func (m *mediaFiles) serve(w http.ResponseWriter, r *http.Request) {
	part, open, err := m.find(r)
	if err != nil {
		refuse(w, r, err)
		return
	}

	content, err := m.open(r.Context(), part)
	if err != nil {
		refuse(w, r, err)
		return
	}
	defer func() { _ = content.Close() }() // it was only read
	media, _, err := mime.ParseMediaType(part.MIME)
	disposition := "inline"
	if err != nil || !safeMedia[media] {
		media, disposition = "application/octet-stream", "attachment"
	} else if media == "text/plain" {
		media += "; charset=utf-8"
	}

	header := w.Header()
	header.Set("Content-Type", media)
	header.Set("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": mediaName(part)}))
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	header.Set("ETag", `"`+digestOfPart(part)+`"`)
	header.Set("Cache-Control", "private, max-age=3600")
	if open {
		header.Set("Access-Control-Allow-Origin", "*")
		header.Set("Cache-Control", "public, max-age=3600") // not for ever: the answer may be taken back
	}
	http.ServeContent(w, r, "", time.Time{}, content)
}

// find finds the file in the answer that the address names.
func (m *mediaFiles) find(r *http.Request) (part normalized.Part, open bool, err error) {
	missing := fault.New(fault.NotFound, "no such file")
	digest, query := httpserver.Param(r, "digest"), r.URL.Query()
	reply, _, err := m.options.Replies.Reply(r.Context(), httpserver.TrimPunctuation(query.Get("reply")))
	switch {
	case fault.Is(err, fault.NotFound), err == nil && reply.Response.Silent:
		return part, false, missing
	case err != nil:
		return part, false, unavailable(err)
	case !reply.DeletedAt.IsZero():
		return part, false, fault.New(fault.Gone, "the answer with this file was deleted")
	}

	open = m.published(reply)
	if !open && !m.opens(reply.ID, digest, httpserver.TrimPunctuation(query.Get("key"))) {
		return part, false, missing
	}

	for _, one := range reply.Response.Parts {
		if (one.Kind == normalized.PartFile || one.Kind == normalized.PartArtifact) && digest != "" && digestOfPart(one) == digest {
			return one, open, nil
		}
	}
	return part, false, missing
}

// open opens the bytes so that parts of them can be read.
func (m *mediaFiles) open(ctx context.Context, part normalized.Part) (io.ReadSeekCloser, error) {
	if part.BytesRef.Kind == normalized.BytesInline {
		content, err := part.BytesRef.Bytes()
		if err != nil {
			return nil, fault.Wrap(fault.NotFound, "no such file", err)
		}
		return inMemory{bytes.NewReader(content)}, nil
	}
	if m.options.Blobs == nil {
		return nil, fault.New(fault.NotFound, "no such file")
	}

	from, err := m.options.Blobs.Open(ctx, part.BytesRef.Digest)
	if err != nil {
		return nil, err
	}
	if seekable, ok := from.(io.ReadSeekCloser); ok {
		return seekable, nil
	}
	defer from.Close()
	content, err := io.ReadAll(from)
	if err != nil {
		return nil, unavailable(err)
	}
	return inMemory{bytes.NewReader(content)}, nil
}

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

const (
	pictureLife     = time.Hour
	maxPictureBytes = 1 << 20 // until the dimensions are known: a camera writes much before them
	maxPictureSide  = 1 << 16
)

// pictureSize returns width and height of a picture that we keep, so that other servers can leave room for it; 0 where its
// header does not say so.
func (m *mediaFiles) pictureSize(part normalized.Part) (width, height int) {
	digest := digestOfPart(part)
	if !strings.HasPrefix(part.MIME, "image/") || digest == "" {
		return 0, 0
	}
	if known, found := m.pictures.get(digest, m.now()); found {
		return known[0], known[1]
	}

	ctx, cancel := context.WithTimeout(context.Background(), mediaWait)
	defer cancel()
	content, err := m.open(ctx, part)
	if err != nil {
		return 0, 0 // another time
	}
	defer func() { _ = content.Close() }() // it was only read
	shape, _, err := image.DecodeConfig(io.LimitReader(content, maxPictureBytes))
	if err != nil || shape.Width <= 0 || shape.Height <= 0 || shape.Width > maxPictureSide || shape.Height > maxPictureSide {
		shape = image.Config{}
	}

	m.pictures.put(digest, [2]int{shape.Width, shape.Height}, m.now().Add(pictureLife))
	return shape.Width, shape.Height
}
