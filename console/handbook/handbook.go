// Package handbook serves the documents of this version of the program below /docs, with a search over their sections.
package handbook

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/a-h/templ"

	"inbox/internal/design"
	"inbox/internal/httpserver"
)

//go:generate go tool -modfile=../../tools/thirdparty/go.mod templ generate -path . -log-level warn

// Root is where the documents are served.
const Root = "/docs"

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

// Documents are the documents of a source tree.
type Documents struct{ library func() (*library, error) }

// NewDocuments returns the documents of a source tree, such as the one embedded in the program. They are read and rendered once, when the
// first reader comes.
func NewDocuments(tree fs.FS) *Documents {
	return &Documents{sync.OnceValues(func() (*library, error) {
		texts, err := Texts(tree)
		if err != nil {
			return nil, fmt.Errorf("read the documents: %w", err)
		}
		return newLibrary(texts)
	})}
}

// Texts returns the text of each document in a source tree by its path. It leaves out decisions, examples and the coverage of requirements:
// people who change the program need them, and have the tree.
func Texts(tree fs.FS) (map[string]string, error) {
	texts := map[string]string{}
	read := func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == "docs/decisions" || name == "docs/examples":
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".md" || name == "docs/contract/coverage.md":
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		texts[name] = string(text)
		return err
	}
	for _, root := range []string{"docs", "FEDERATION.md", "SECURITY.md"} {
		if err := fs.WalkDir(tree, root, read); err != nil {
			return nil, err
		}
	}
	return texts, nil
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
type Handbook struct {
	site      string
	documents *Documents
}

// New returns a handbook of the documents; site is in the title of each page.
func New(site string, documents *Documents) *Handbook { return &Handbook{site, documents} }

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
	all, err := h.documents.library()
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
