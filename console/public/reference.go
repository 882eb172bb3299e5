package public

import (
	"net/http"
	"strings"

	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/reference"
)

// reference serves one page of the reference. It is in English, whoever reads it, as the codes are.
func (p *Pages) reference(w http.ResponseWriter, r *http.Request) {
	page, known := reference.Get(httpserver.Param(r, "page"))
	if !known {
		httpserver.WriteFault(w, fault.New(fault.NotFound, "there is no such page; "+reference.Path+reference.Errors+" is one"))
		return
	}

	head := p.head(r, page.Title, reference.Path+page.Name)
	head.Lang = "en"
	send(w, r, referencePage(head, page, p.options.Operator), design.Answer{Status: http.StatusOK, Keep: keep})
}

// served returns the address on this server of what a document in docs/reference links to; empty = the server has no such page.
func served(href string) string {
	name, anchor, _ := strings.Cut(href, "#")
	page, known := reference.Get(strings.TrimSuffix(name, ".md"))
	if !known {
		return ""
	}
	if anchor != "" {
		anchor = "#" + anchor
	}
	return reference.Path + page.Name + anchor
}
