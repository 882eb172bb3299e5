package a2a

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"inbox/internal/httpserver"
	"inbox/internal/markup/markuptest"
)

// costPerKiB is what a request may cost in CPU time for each KiB of it, over costOnce.
const (
	costPerKiB   = time.Millisecond / 4
	costOnce     = 120 * time.Millisecond
	rusageThread = 1 // RUSAGE_THREAD of getrusage(2)
)

// threadTime is the CPU time of the current thread, which other tests and the collector do not add to.
func threadTime(t testing.TB) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// serving returns the handler of the whole edge, without a connection.
func (b *bundle) serving() http.Handler {
	server, err := httpserver.New(httpserver.Options{Routes: b.adapter.Routes(), WithoutHealth: true, Logger: b.adapter.log})
	if err != nil {
		b.Fatal(err)
	}
	return server.Handler()
}

// cost serves a request on one thread and returns its CPU time. One that is over the bound is tried again: the collector
// may have made this thread help, or others of the machine its caches useless.
func cost(t testing.TB, serve http.Handler, path, token string, body []byte) (used time.Duration, answer *httptest.ResponseRecorder) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 10 {
		request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		answer = httptest.NewRecorder()
		before := threadTime(t)
		serve.ServeHTTP(answer, request)
		if used = threadTime(t) - before; used <= allowed(body) {
			return used, answer
		}
	}
	return used, answer
}

func allowed(body []byte) time.Duration {
	return markuptest.Slowdown * (costOnce + time.Duration(len(body))*costPerKiB/1024)
}

// hostileBodies are documents of nearly the whole limit that are cheap to write.
func hostileBodies(size int) map[string]string {
	fill := func(unit string) string { return strings.Repeat(unit, size/len(unit)) }
	deep := size / 2
	return map[string]string{
		"lists in lists":     strings.Repeat("[", deep) + strings.Repeat("]", deep),
		"objects in objects": strings.Repeat(`{"a":`, size/6) + "1" + strings.Repeat("}", size/6),
		"many lists":         "[" + fill("[],") + "0]",
		"many members":       `{` + fill(`"a":1,`) + `"b":1}`,
		"shallow enough":     "[" + strings.Repeat(strings.Repeat("[", 50)+strings.Repeat("]", 50)+",", 900) + "0]",
		"never ends":         fill("["),
		"escapes":            `"` + fill(`\u0000`) + `"`,
	}
}

// TestHostileJSONIsCheap: what nests deeply or has very many values is refused for the price of reading it (7.9 MB cost 9.2 s).
func TestHostileJSONIsCheap(t *testing.T) {
	b := setup(t)
	serve := b.serving()
	for name, hostile := range hostileBodies(7 << 20 / markuptest.Slowdown) {
		for _, c := range []struct{ path, before, after string }{
			{"/a2a/echo", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"metadata":{"x":`, `}}}}`},
			{"/a2a/echo", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":`, `}]}}}`},
			{"/a2a/echo", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":{"x":`, `}}]}}}`},
			{"/a2a/echo", `{"id":`, `}`},
			{"/a2a/echo/rest/message:send", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":`, `}]}}`},
			{"/a2a/echo/v1/message:send", `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"data":{"data":{"x":`, `}}}]}}`},
		} {
			body := []byte(c.before + hostile + c.after)
			if used, answer := cost(t, serve, c.path, b.ada, body); used > allowed(body) {
				t.Errorf("%s in %.60s: %v for %d KiB (%d)", name, c.before, used, len(body)>>10, answer.Code)
			}
		}
	}
}

// FuzzRequestCost: no body costs more than its size allows.
func FuzzRequestCost(f *testing.F) {
	b := &bundle{}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":[[[1,2]]]}],"metadata":{"a_b":{"c":"é"}}}}}`))
	for _, hostile := range hostileBodies(4 << 10) {
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","metadata":` + hostile + `}}}`))
	}
	var serve http.Handler
	f.Fuzz(func(t *testing.T, body []byte) {
		if serve == nil {
			b = setup(t)
			serve = b.serving()
		}
		for _, path := range []string{"/a2a/echo", "/a2a/echo/rest/message:send", "/a2a/echo/v1/message:send"} {
			if used, answer := cost(t, serve, path, b.ada, body); used > allowed(body) {
				t.Errorf("%s: %v for %d bytes (%d)", path, used, len(body), answer.Code)
			}
		}
	})
}
