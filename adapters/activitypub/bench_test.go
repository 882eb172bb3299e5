package activitypub

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
)

// accepting takes every message and keeps none.
type accepting struct{ *engine }

func (accepting) Receive(context.Context, exchange.Inbound) (exchange.Receipt, error) {
	return exchange.Receipt{New: true}, nil
}

// BenchmarkDelivery is one signed Mastodon note with a known key, from the request to the hand-over of the message:
// everything except the connection and the store.
func BenchmarkDelivery(b *testing.B) {
	r := newRig(b, func(o *Options) { o.Receiver = accepting{o.Receiver.(*engine)} })
	raw, err := os.ReadFile("testdata/inbound/mastodon-direct.json")
	if err != nil {
		b.Fatal(err)
	}
	body := strings.NewReplacer("https://inbox.example", r.base, "inbox.example", r.domain, "https://m.example", r.remote.base).Replace(string(raw))
	d := r.deliver(body).sign()
	request := func() *http.Request {
		q := httptest.NewRequest(http.MethodPost, d.path, bytes.NewReader(d.body))
		q.Host, q.Header = d.host, d.header
		return q
	}
	serve := func() int {
		w := httptest.NewRecorder()
		r.adapter.inbox.serveSharedInbox(w, request())
		return w.Code
	}
	if code := serve(); code != http.StatusAccepted {
		b.Fatal(code)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(d.body)))
	b.ResetTimer()
	for b.Loop() {
		if code := serve(); code != http.StatusAccepted {
			b.Fatal(code)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/delivery")
}

func BenchmarkParseObject(b *testing.B) {
	body, err := os.ReadFile("testdata/inbound/mastodon-direct.json")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := document.Parse(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	r := newRig(b)
	d := r.deliver(r.mentionNote("1", "hello")).sign()
	request := signature.Request{Method: d.method, Target: d.path, Host: d.host, Origin: r.base, Header: d.header, Body: d.body}
	key := &aliceKey().PublicKey
	b.ReportAllocs()
	for b.Loop() {
		signed, err := signature.Check(request, r.adapter.now())
		if err != nil {
			b.Fatal(err)
		}
		if err := signed.Verify(key); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReply is one answer to a loopback server: render, sign, post.
func BenchmarkReply(b *testing.B) {
	r := newRig(b)
	r.remote.handle("/unused", func(http.ResponseWriter, *http.Request) {})
	reply := r.reply(r.question("1", "hello"), "hello yourself")
	plan, err := r.adapter.outbox.Plan(b.Context(), reply)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		reply.ID = fmt.Sprintf("%036d", i)
		if _, err := r.adapter.outbox.Deliver(b.Context(), exchange.Delivery{Attempt: 1, Reply: reply, Destination: plan.Destinations[0]}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkActor(b *testing.B) {
	r := newRig(b)
	w := &discardWriter{header: http.Header{}}
	request := httptest.NewRequest(http.MethodGet, "/actor", nil)
	request.Header.Set("Accept", activityMediaType)
	b.ReportAllocs()
	for b.Loop() {
		r.adapter.profiles.serveInstance(w, request)
	}
}

type discardWriter struct{ header http.Header }

func (d *discardWriter) Header() http.Header { return d.header }

func (d *discardWriter) Write(body []byte) (int, error) { return io.Discard.Write(body) }

func (d *discardWriter) WriteHeader(int) {}
