// Package handbook serves the documents of this version of the program below /docs, with a search over their sections.
package handbook

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/a-h/templ"

	"inbox/internal/design"
	"inbox/internal/httpserver"
)

//go:generate go tool -modfile=../../tools/go.mod templ generate -path . -log-level warn
//go:generate go run inbox/internal/pagecode .
//go:generate go test -run ^TestPacked$ . -update

// Root is where the documents are served.
const Root = "/docs"

// packed holds the documents, compressed: a program shall not weigh more by them than it has to.
//
//go:embed documents.tar.gz
var packed []byte

// maxDocuments bounds what the archive is unpacked to, in bytes.
const maxDocuments = 8 << 20

// library is all documents by their path below Root, without ".md"; the index is "".
type library struct {
	pages    map[string]*page
	sections []section
}

type page struct {
	path, title string
	folded      string // the title in lower case
	html        string // made from a document of the tree, which is trusted
	headings    []heading
}

type heading struct{ id, words string }

// read unpacks and renders all documents, once for all servers of a process and when the first reader comes.
var read = sync.OnceValues(func() (*library, error) {
	files, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("read the documents in the program: %w", err)
	}
	return newLibrary(files)
})

// unpack returns the texts of the archive by their path in the tree.
func unpack(archive []byte) (map[string]string, error) {
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for reader, left := tar.NewReader(plain), int64(maxDocuments); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if left -= header.Size; left < 0 {
			return nil, fmt.Errorf("the documents have more than %d bytes", maxDocuments)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			return nil, err
		}
		files[header.Name] = string(text)
	}
}

// pathOf returns where a document of the tree is served: docs/agents/llm.md is agents/llm.
func pathOf(file string) string {
	path := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(file, "docs/"), ".md"))
	if path == "readme" {
		return ""
	}
	return path
}

// Handbook serves the documents.
type Handbook struct{ site string }

// New makes a handbook; site is what the pages are headed with.
func New(site string) *Handbook { return &Handbook{site: site} }

// Routes are the index, each document, and the search.
func (h *Handbook) Routes() []httpserver.Route {
	return []httpserver.Route{
		{Method: http.MethodGet, Pattern: Root, Handler: http.HandlerFunc(h.document)},
		{Method: http.MethodGet, Pattern: Root + "/*", Handler: http.HandlerFunc(h.document)},
	}
}

// searchPath is below Root; no document has this name.
const searchPath = "search"

// keep lets caches have a document for an hour: it changes with the program.
const keep = "public, max-age=3600"

func (h *Handbook) document(w http.ResponseWriter, r *http.Request) {
	all, err := read()
	if err != nil {
		httpserver.WriteFault(w, err)
		return
	}

	path := httpserver.Param(r, "*")
	if path == searchPath {
		h.search(w, r, all)
		return
	}
	found, known := all.pages[path]
	if !known {
		answer := design.Answer{Status: http.StatusNotFound, FormAction: "'self'"}
		h.send(w, r, missingPage(h.head("There is no such document", true), path), answer)
		return
	}
	h.send(w, r, documentPage(h.head(found.title, false), found), design.Answer{Status: http.StatusOK, Keep: keep, FormAction: "'self'"})
}

func (h *Handbook) search(w http.ResponseWriter, r *http.Request, all *library) {
	query := r.URL.Query().Get("q")
	hits := all.search(query)
	h.send(w, r, searchPage(h.head("Search", true), query, hits), design.Answer{Status: http.StatusOK, FormAction: "'self'"})
}

func (h *Handbook) head(title string, hidden bool) design.Head {
	head := design.Head{Title: title + " · " + h.site, Lang: "en", Class: "public", OpenGraph: design.OpenGraph{Site: h.site}}
	if hidden {
		head.Robots = "noindex"
	}
	return head
}

func (h *Handbook) send(w http.ResponseWriter, r *http.Request, content templ.Component, answer design.Answer) {
	// The documents are in English, whatever the reader's language is, and so is what stands around them.
	if err := design.Send(w, r.WithContext(context.WithoutCancel(r.Context())), content, answer); err != nil {
		httpserver.WriteFault(w, err)
	}
}
