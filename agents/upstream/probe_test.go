package upstream

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"inbox/internal/safehttp"
)

// TestProbe: only a missing answer, or a gateway, says that a program is down.
func TestProbe(t *testing.T) {
	status := http.StatusOK
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(program.Close)
	client := safehttp.New(safehttp.Options{AllowPrivate: true})
	t.Cleanup(client.Close)

	for code, down := range map[int]bool{200: false, 204: false, 401: false, 404: false, 405: false, 429: false, 500: false, 501: false, 502: true, 503: true, 504: true, 521: true, 530: true, 0: true} {
		status = code
		request, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, program.URL+"/hook?secret=1", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := Probe(client, request); (err != nil) != down {
			t.Errorf("status %d: %v", code, err)
		}
	}
}
