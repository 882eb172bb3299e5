package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"inbox/e2e/instance"
	"inbox/internal/await"
)

// TestBridgeCallbacksOnlyGoOutside: addresses inside are refused when they are registered, in every form, and a name that leads
// inside only later is not dialled. The item waits in the queue all the while.
func TestBridgeCallbacksOnlyGoOutside(t *testing.T) {
	t.Parallel()
	names := startNames(t)
	var reached atomic.Int64
	// Only who may listen there can count connections; the others rely on the server's own count of refusals.
	if listener, err := net.Listen("tcp", "127.0.0.1:443"); err == nil {
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				reached.Add(1)
				_ = connection.Close()
			}
		}()
	}
	s := start(t, instance.Settings{Strict: true, Domain: "inbox.test", DNS: names.address, More: "[bridges]\nretry = [\"100ms\", \"100ms\"]\n"})
	relay := s.bridge("relay")
	register := func(address string) (int, map[string]any) {
		return relay.tryAt("http://"+s.Settings.HTTP, http.MethodPost, "/v1/bridge/register", map[string]any{"callback_url": address})
	}
	for name, address := range map[string]string{
		"inside.test": "10.0.0.7", "metadata.test": "169.254.169.254", "local.test": "127.0.0.1", "shared.test": "100.64.0.1",
	} {
		names.set(name, address)
	}
	for _, address := range []string{
		"http://93.184.215.14/h", "https://127.0.0.1/h", "https://127.1/h", "https://2130706433/h", "https://0x7f000001/h", "https://localhost/h",
		"https://10.0.0.7/h", "https://192.168.1.1/h", "https://169.254.169.254/latest/meta-data", "https://0.0.0.0/h", "https://[::1]/h",
		"https://[::ffff:127.0.0.1]/h", "https://[fe80::1]/h", "https://[64:ff9b::7f00:1]/h", "https://inside.test/h", "https://metadata.test/h",
		"https://local.test/h", "https://LOCAL.test./h", "https://shared.test/h", "https://public.test:8443/h", "https://user:secret@public.test/h",
		"file:///etc/passwd", "gopher://public.test/", "https://public.test/h#part",
	} {
		status, answer := register(address)
		if status != http.StatusBadRequest || strings.Contains(fmt.Sprint(answer), "10.0.0.7") && !strings.Contains(address, "10.0.0.7") {
			t.Errorf("%s: answered %d %v", address, status, answer)
		}
	}
	names.set("rebind.test", "93.184.215.14")
	if status, answer := register("https://rebind.test/h"); status != http.StatusOK || names.questions("rebind.test") == 0 {
		t.Fatalf("while the name leads outside: %d %v", status, answer)
	}
	names.set("rebind.test", "127.0.0.1")
	before := s.metric("inbox_outgoing_refused_dials_total")
	local := "http://" + s.Settings.HTTP
	status, run := relay.tryAt(local, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "wait": true})
	if status != http.StatusOK {
		t.Fatalf("answered %d %v", status, run)
	}
	eventually(t, "the callback is refused, again and again", func() bool { return s.metric("inbox_outgoing_refused_dials_total") >= before+3 })
	eventually(t, "the item says so and waits", func() bool {
		_, answer := relay.tryAt(local, http.MethodGet, "/v1/bridge/items/"+run["queue_id"].(string), nil)
		return answer["delivery_status"] == "failed"
	})
	if reached.Load() != 0 {
		t.Errorf("an address inside was dialled %d times", reached.Load())
	}
}

// TestCallbacksAreRepeated calls back a receiver that refuses, again and again: each time with the same id and a signature
// that the recipe of docs/bridges.md verifies. The server is killed between two attempts. Nothing of it removes the item.
func TestCallbacksAreRepeated(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		const secret = "sixteen bytes or more"
		type attempt struct{ id, number string }
		attempts := make(chan attempt, 64)
		var open atomic.Bool
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write(body)
			if r.Header.Get("X-Inbox-Signature") != "sha256="+hex.EncodeToString(mac.Sum(nil)) {
				t.Errorf("the signature is %q", r.Header.Get("X-Inbox-Signature"))
			}
			if !strings.Contains(string(body), `"queue_id":"`+r.Header.Get("X-Inbox-Delivery")+`"`) {
				t.Errorf("the delivery %s brings %s", r.Header.Get("X-Inbox-Delivery"), body)
			}
			if !open.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			attempts <- attempt{r.Header.Get("X-Inbox-Delivery"), r.Header.Get("X-Inbox-Attempt")}
		}))
		t.Cleanup(receiver.Close)
		s := start(t, instance.Settings{Database: database, Lease: "1s", More: "[bridges]\nretry = [\"300ms\", \"600ms\", \"2s\", \"2s\", \"2s\", \"2s\", \"2s\"]\n"})
		relay := s.bridge("relay")
		relay.ask(http.MethodPost, "/v1/bridge/register", map[string]any{"callback_url": receiver.URL, "callback_secret": secret})
		run := relay.ask(http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "wait": true})
		var past []attempt
		for range 3 {
			past = append(past, await.Receive(t, attempts, "three attempts of the callback"))
		}
		open.Store(true)
		s.killed()
		past = append(past, await.Receive(t, attempts, "an attempt after the crash"))
		for i, one := range past {
			if one.id != run["queue_id"] || i < 3 && one.number != fmt.Sprint(i+1) {
				t.Errorf("attempt %d is %+v, want the id %v", i+1, one, run["queue_id"])
			}
		}
		eventually(t, "the item is delivered", func() bool {
			return relay.ask(http.MethodGet, "/v1/bridge/items/"+run["queue_id"].(string), nil)["delivery_status"] == "delivered"
		})
		if ids := relay.pending(); len(ids) != 1 || ids[0] != run["queue_id"] {
			t.Errorf("a callback removed the item: %v", ids)
		}
	})
}
