package inbox

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"inbox/e2e/load"
)

const persons = 50

type signedNote struct {
	header http.Header
	body   []byte
}

// BenchmarkAccept is a signed note of a known person through the whole server except for the socket, committed and
// synced on SQLite. The agent fetches its work and never does, so nothing but accepting happens. Run it for profiles:
// go test -bench Accept -benchtime 4000x -cpuprofile cpu.out
func BenchmarkAccept(b *testing.B) {
	community, err := load.NewCommunity("127.0.0.1:0", persons, func(load.Arrival) {})
	if err != nil {
		b.Fatal(err)
	}
	defer community.Close()
	handler := startAccepting(b)
	target := &url.URL{Scheme: "http", Host: "inbox.test:8080", Path: "/agents/busy/inbox"}
	sign := func(i int) (signedNote, error) {
		person := community.Persons[i%persons]
		actor := "http://inbox.test:8080/agents/busy"
		mention := person.Mention(actor, fmt.Sprint(i), "a question of some ordinary length")
		request, err := person.Delivery(actor+"/inbox", mention.Body, load.Signature{})
		if err != nil {
			return signedNote{}, err
		}
		return signedNote{header: request.Header, body: mention.Body}, nil
	}
	notes := make([]signedNote, persons+b.N)
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for i := range notes {
		group.Go(func() (err error) { notes[i], err = sign(i); return err })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	serve := func(note signedNote) {
		request := httptest.NewRequest(http.MethodPost, target.Path, bytes.NewReader(note.body))
		request.Host, request.Header = target.Host, note.header
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusAccepted {
			b.Errorf("status %d: %s", recorder.Code, recorder.Body)
		}
	}
	for _, note := range notes[:persons] {
		serve(note)
	}
	var next atomic.Int64
	next.Store(persons)
	b.SetParallelism(16)
	b.ReportAllocs()
	b.ResetTimer()
	used := processorTime()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			serve(notes[next.Add(1)-1])
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-used).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "accepts/s")
}

// processorTime is what the process has used of processors: on a machine that others use too it says more than the clock.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func startAccepting(b *testing.B) http.Handler {
	b.Helper()
	directory := b.TempDir()
	file := filepath.Join(directory, "inbox.toml")
	text := `domain = "inbox.test:8080"
public_url = "http://inbox.test:8080"
data_dir = "` + filepath.Join(directory, "data") + `"
[federation]
allow_private = true
[http]
listen = "127.0.0.1:0"
[smtp]
listen = ""
[log]
level = "error"
[[agents]]
name = "busy"
kind = "pull"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return startServerFrom(b, file).http.Handler()
}

// startServerFrom runs a server with a file.
func startServerFrom(tb testing.TB, file string) *Server {
	tb.Helper()
	config, err := LoadConfig(file, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return runServer(tb, config)
}
