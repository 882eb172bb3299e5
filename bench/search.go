package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

const (
	searchRate       = 500  // messages a second
	searchTimes      = 5    // as long as other scenarios take
	searchVocabulary = 2000 // different words in the messages, but for the one that each has alone
	lookAgain        = 100 * time.Millisecond
	// searchPatience is how long a message may take to be found.
	searchPatience = 2 * time.Minute
)

func searchScenario() scenario {
	return scenario{
		name: "search_lag",
		about: fmt.Sprintf("`SendMessage` %d times a second, %d times as long as the other scenarios, whatever the server does: time from the moment at which a message was due until a search for a word of it finds it, for the newest message again and again",
			searchRate, searchTimes),
		run: func(ctx context.Context, w *world, server *instance.Instance) (measurement, error) {
			return w.withToken(ctx, server, func(peer load.A2APeer) (measurement, error) { return w.searches(ctx, server, peer) })
		},
	}
}

// searches sends messages and searches for some of them.
func (w *world) searches(ctx context.Context, server *instance.Instance, peer load.A2APeer) (measurement, error) {
	secret, err := os.ReadFile(filepath.Join(server.Directory, instance.Data, "admin-token"))
	if err != nil {
		return measurement{}, err
	}
	token := strings.TrimSpace(string(secret))

	count := searchRate * searchTimes * int(w.duration/time.Second)
	var newest atomic.Int64 // number of the last message that was sent
	newest.Store(-1)
	sent := make(chan struct{})
	var failures failures
	var group sync.WaitGroup
	started := time.Now()
	dueAt := func(i int) time.Time { return started.Add(time.Duration(i) * time.Second / searchRate) }

	looked := make(chan measurement, 1)
	go func() { looked <- w.look(ctx, token, &newest, dueAt, sent) }()
	for i := range count {
		select {
		case <-time.After(time.Until(dueAt(i))):
		case <-ctx.Done():
			return measurement{}, ctx.Err()
		}
		group.Go(func() {
			_, err := peer.Send(ctx, load.SendBody(fmt.Sprintf("message-%d", i), searchedText(i), true))
			failures.add(err)
			if err == nil {
				newest.Store(int64(i))
			}
		})
	}

	group.Wait()
	took := time.Since(started)
	lag, err := w.metric(ctx, "inbox_search_lag_seconds")
	if err != nil {
		return measurement{}, err
	}
	newest.Store(int64(count - 1))
	close(sent)
	m := <-looked
	if err := cmp.Or(failures.last, m.err); err != nil {
		return m, err
	}
	fmt.Fprintf(os.Stderr, "  search: inbox_search_lag_seconds was %.1f after the last message\n", lag)
	m.elapsed, m.completed = took, count
	return m, nil
}

// look searches for the newest message until it is found, again and again, and last of all for the last one. One search at a time: many would be
// load of their own.
func (w *world) look(ctx context.Context, token string, newest *atomic.Int64, dueAt func(int) time.Time, sent <-chan struct{}) (m measurement) {
	for last, end := -1, false; ; {
		select {
		case <-sent:
			end = true
		case <-time.After(lookAgain):
		case <-ctx.Done():
			m.err = ctx.Err()
			return m
		}
		if i := int(newest.Load()); i > last {
			if m.err = w.awaitFound(ctx, token, needle(i)); m.err != nil {
				return m
			}
			m.latencies = append(m.latencies, time.Since(dueAt(i)))
			last = i
		}
		if end {
			return m
		}
	}
}

// needle is the word that message i has alone.
func needle(i int) string { return fmt.Sprintf("needle%06d", i) }

// searchedText is a message of some fifty words, one of which no other has.
func searchedText(i int) string {
	var text strings.Builder
	text.WriteString(needle(i))
	for k := range 50 {
		fmt.Fprintf(&text, " word%d", (i*7+k*k*31)%searchVocabulary)
	}
	return text.String()
}

// awaitFound searches until a message with the word is found.
func (w *world) awaitFound(ctx context.Context, token, word string) error {
	ctx, cancel := context.WithTimeout(ctx, searchPatience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.http+"/api/v1/turns?text="+url.QueryEscape(word), nil)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := w.client.Do(request)
		if err != nil {
			return fmt.Errorf("search for %s: %w", word, err)
		}
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		err = json.NewDecoder(response.Body).Decode(&list)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("search for %s: status %d", word, response.StatusCode)
		}
		if err != nil {
			return fmt.Errorf("search for %s: %w", word, err)
		}
		if len(list.Items) > 0 {
			return nil
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return fmt.Errorf("%s is not found: %w", word, ctx.Err())
		}
	}
}
