package archtest

import (
	"slices"
	"testing"
)

// TestNoTemplates: text/template calls methods by name, so that the linker keeps every exported method of every type that is stored in
// an interface, and the program grows by six megabytes (decision 0099).
func TestNoTemplates(t *testing.T) {
	for _, u := range packages(t) {
		if u.room() == "bench" {
			continue
		}
		for _, forbidden := range []string{"text/template", "html/template"} {
			if slices.Contains(u.Imports, forbidden) {
				t.Errorf("%s imports %s, which makes the program 6 MB larger: write pages in templ", u.room(), forbidden)
			}
		}
	}
}
