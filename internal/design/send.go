package design

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/a-h/templ"
)

// Answer is how a page is sent; Status is required.
type Answer struct {
	Status     int
	FormAction string // where its forms may lead (Content Security Policy 3, section 6.4.1); empty = nowhere
	Images     string // the origin of a picture that the operator chose; empty = none beside our own
	Keep       string // Cache-Control with which a page is sent with an entity tag; empty = the caller sees to it
}

// Policy returns the Content-Security-Policy of the page: its own files and pictures in the page itself, and nothing of others.
func (a Answer) Policy() string {
	forms, images := a.FormAction, "'self' data:"
	if forms == "" {
		forms = "'none'"
	}
	if a.Images != "" {
		images += " " + a.Images
	}
	return "default-src 'none'; style-src 'self'; script-src 'self'; img-src " + images + "; connect-src 'self'; form-action " + forms +
		"; frame-ancestors 'none'; base-uri 'none'"
}

// Send renders a page whole before it begins the response, and sends nothing when it returns an error.
func Send(w http.ResponseWriter, r *http.Request, content templ.Component, answer Answer) error {
	var page bytes.Buffer
	if err := content.Render(r.Context(), &page); err != nil {
		return err
	}

	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", answer.Policy())
	header.Set("X-Content-Type-Options", "nosniff")
	if header.Get("Referrer-Policy") == "" {
		header.Set("Referrer-Policy", "no-referrer")
	}
	if answer.Keep != "" {
		sum := sha256.Sum256(page.Bytes())
		tag := `"` + hex.EncodeToString(sum[:12]) + `"`
		header.Set("Cache-Control", answer.Keep)
		header.Set("ETag", tag)
		header.Add("Vary", "Accept, Accept-Language, Cookie")
		if matches(r.Header.Get("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}

	w.WriteHeader(answer.Status)
	_, _ = w.Write(page.Bytes()) // the reader went away: nothing to do
	return nil
}
