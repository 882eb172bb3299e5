package pages

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// pageSize is how many rows a list of the console has.
const pageSize = 50

// query returns the address of the request's page with other values in its query; an empty one leaves the name out. Where a list goes
// on depends on its filter, so that a change of it begins at the first page.
func query(r *http.Request, pairs ...string) string {
	values := url.Values{}
	for name, all := range r.URL.Query() {
		if name != "before" && len(all) > 0 && all[0] != "" {
			values.Set(name, all[0])
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			values.Del(pairs[i])
			continue
		}
		values.Set(pairs[i], pairs[i+1])
	}
	if len(values) == 0 {
		return r.URL.Path
	}
	return r.URL.Path + "?" + values.Encode()
}

// at joins the parts of an address below the console; each part is escaped.
func at(parts ...string) string {
	var path strings.Builder
	path.WriteString(Root)
	for _, part := range parts {
		path.WriteString("/" + url.PathEscape(part))
	}
	return path.String()
}

// same says a value as it is.
func same(_ context.Context, value string) string { return value }

// values writes names and values as a query.
func values(pairs ...string) string {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	return query.Encode()
}
