package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"inbox"
)

// TestReady asks servers that say something else each.
func TestReady(t *testing.T) {
	for name, test := range map[string]struct {
		status     int
		body, want string
	}{
		"ready":       {200, `{"ready":true}`, ""},
		"stopping":    {503, `{"ready":false,"reason":"the server is stopping"}`, "not ready: the server is stopping"},
		"a full disk": {503, `{"ready":false,"details":[{"name":"disk","required":true,"reason":"full","remedy":"make room"},{"name":"back ends","reason":"down"},{"name":"queue","ok":true,"required":true}]}`, "not ready: disk: full: make room"},
		"another":     {404, "not here", "answered 404"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked, authorization string
			answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked, authorization = r.URL.Path, r.Header.Get("Authorization")
				w.WriteHeader(test.status)
				_, _ = fmt.Fprint(w, test.body)
			})
			plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
			defer plain.Close()
			defer secure.Close()

			for _, server := range []*httptest.Server{plain, secure} {
				config := &inbox.Config{PublicURL: "https://agents.example"}
				config.HTTP.Listen, config.HTTP.TLS = server.Listener.Addr().String(), "off"
				if server == secure {
					config.HTTP.TLS = "files"
				}
				node, err := newRunningNode(config, "")
				if err != nil {
					t.Fatal(err)
				}
				err = node.ready(t.Context())
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: %v, want %q", node.base, err, test.want)
				}
				if asked != "/readyz" || authorization != "" {
					t.Errorf("asked %q with the credentials %q", asked, authorization)
				}
			}
		})
	}
}
