package httpserver

import (
	"net/http"
	"strings"
)

// endOfSentence is what follows a link in a text. Mail programs and chats that recognise links take it for a part of the address.
const endOfSentence = ".,;:!?)]}>'\"»”’…"

// TrimPunctuation removes the punctuation of a sentence from the end of a link or of a part of one.
func TrimPunctuation(link string) string { return strings.TrimRight(link, endOfSentence) }

// withoutPunctuation sends browsers that open an address with the punctuation of its sentence to the address without it. No page of ours
// ends in punctuation. Queries stay as they are: people search for sentences.
func withoutPunctuation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := TrimPunctuation(r.URL.Path)
		if path == r.URL.Path || path == "" || r.URL.RawQuery != "" || !opensPage(r) {
			next.ServeHTTP(w, r)
			return
		}
		to := *r.URL
		to.Path, to.RawPath = "/"+strings.TrimLeft(path, "/\\"), "" // never the address of another host
		http.Redirect(w, r, to.RequestURI(), http.StatusFound)      //nolint:gosec // a path of this host: it begins with one slash
	})
}

// opensPage reports whether a person's browser asks for a page.
func opensPage(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}
