// Package design is what all pages look like: one stylesheet with its tokens, the script of the small things that every page does,
// htmx, the mark, and the components that pages are built of. It knows no agent, no message and no route of a page.
package design

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:generate go tool -modfile=../../tools/thirdparty/go.mod templ generate -path . -log-level warn

//go:embed web
var files embed.FS

// AssetPattern is the route of the files that pages load; the handler is Assets.
const AssetPattern = "/assets/{hash}/{name}"

// FaviconPath is where browsers look for an icon unasked; the handler is Favicon.
const FaviconPath = "/favicon.ico"

// asset is one file as it is served.
type asset struct {
	kind    string
	content []byte
	hash    string        // the first 16 hexadecimal digits of its SHA-256
	packed  func() []byte // nil = it is compressed by itself
}

func newAsset(kind string, content []byte) *asset {
	sum := sha256.Sum256(content)
	made := &asset{kind: kind, content: content, hash: hex.EncodeToString(sum[:8])}
	if kind != pngImage {
		made.packed = sync.OnceValue(func() []byte { return pack(content) })
	}
	return made
}

// pack compresses once, when a browser first asks.
func pack(content []byte) []byte {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("design: compress an asset: " + err.Error()) // memory takes all
	}
	return packed.Bytes()
}

const (
	styleSheet = "text/css; charset=utf-8"
	javaScript = "text/javascript; charset=utf-8"
	pngImage   = "image/png"
)

// assets are made when a page is first asked for, so that commands do not wait for them.
var assets = sync.OnceValue(func() map[string]*asset {
	return map[string]*asset{
		"design.css":  newAsset(styleSheet, slices.Concat([]byte(tokens()), []byte("\n"), file("design.css"))),
		"design.js":   newAsset(javaScript, file("design.js")),
		"htmx.js":     newAsset(javaScript, file("htmx/htmx.js")),
		"sse.js":      newAsset(javaScript, file("htmx/sse.js")),
		"favicon.svg": newAsset("image/svg+xml", file("favicon.svg")),
		"mask.svg":    newAsset("image/svg+xml", file("mask.svg")),
		"mark.png":    newAsset(pngImage, file("mark.png")),
	}
})

func file(name string) []byte {
	content, err := files.ReadFile(path.Join("web", name))
	if err != nil {
		panic("design: " + err.Error()) // the file is part of the program
	}
	return content
}

// Address returns the path under which pages load a file: it changes with the content, so that browsers keep it for ever. It panics for a
// name that does not exist.
func Address(name string) string {
	found, is := assets()[name]
	if !is {
		panic("design: there is no asset " + name)
	}
	return "/assets/" + found.hash + "/" + name
}

// Assets serves the files under AssetPattern.
func Assets() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hash, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/assets/"), "/")
		found, is := assets()[name]
		if !is {
			http.NotFound(w, r)
			return
		}

		found.serve(w, r, keepFor(hash == found.hash))
	})
}

// keepFor returns the Cache-Control of a file whose address names its content. While nodes of two versions serve one address, a page of
// one asks the other: what it gets is close enough to be read, and must not be kept under that name.
func keepFor(named bool) string {
	if named {
		return "public, max-age=31536000, immutable"
	}
	return "no-store"
}

// Favicon serves the icon to browsers that look for it without reading a page.
func Favicon() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assets()["favicon.svg"].serve(w, r, "public, max-age=86400")
	})
}

func (a *asset) serve(w http.ResponseWriter, r *http.Request, keep string) {
	header := w.Header()
	header.Set("Content-Type", a.kind)
	header.Set("Cache-Control", keep)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'") // an icon that is opened by itself is a document
	if a.packed != nil {
		header.Set("Vary", "Accept-Encoding")
	}

	content, tag := a.content, `"`+a.hash+`"`
	if a.packed != nil && acceptsGzip(r.Header.Get("Accept-Encoding")) {
		content, tag = a.packed(), `"`+a.hash+`-gzip"`
		header.Set("Content-Encoding", "gzip")
	}

	header.Set("ETag", tag)
	if matches(r.Header.Get("If-None-Match"), tag) {
		header.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}

	header.Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content) // the reader went away: nothing to do
}

// acceptsGzip reads Accept-Encoding (RFC 9110 section 12.5.3) for the one coding that is offered.
func acceptsGzip(header string) bool {
	for item := range strings.SplitSeq(header, ",") {
		coding, parameters, _ := strings.Cut(strings.TrimSpace(item), ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		weight, given := strings.CutPrefix(strings.ToLower(strings.ReplaceAll(parameters, " ", "")), "q=")
		if !given {
			return true
		}
		quality, err := strconv.ParseFloat(weight, 64)
		return err == nil && quality > 0
	}
	return false
}

// matches compares entity tags weakly (RFC 9110 section 13.1.2).
func matches(header, tag string) bool {
	for item := range strings.SplitSeq(header, ",") {
		if item = strings.TrimSpace(item); item == "*" || strings.TrimPrefix(item, "W/") == tag {
			return true
		}
	}
	return false
}

// contrast finds the tokens of high contrast in their media query.
var contrast = regexp.MustCompile(`(?s)@media \(prefers-contrast: more\) \{\s*:root \{(.*?)\n  \}\n\}`)

// tokens returns the tokens with the choice of high contrast beside the wish of the system: the same values under both.
func tokens() string {
	text := string(file("tokens.css"))
	more := contrast.FindStringSubmatch(text)
	return text + "\n:root[data-theme=\"contrast\"] {" + more[1] + "\n}\n"
}

// themed is a selector of the root with a chosen theme.
var themed = regexp.MustCompile(`:root(\[[^\]]*\])`)

// ShadowTokens returns the tokens for a shadow tree, whose host takes the place of the root (CSS Scoping Module Level 1, section 3.2.1).
func ShadowTokens() string {
	return strings.ReplaceAll(themed.ReplaceAllString(tokens(), ":host($1)"), ":root", ":host")
}
