package llm

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/fault"
)

// failing is a model that fails some times and then answers.
func failing(times int, err error, before ...Delta) (provider Provider, asked *int) {
	asked = new(int)
	return modelFunc(func(_ context.Context, _ Request, yield func(Delta) bool) error {
		*asked++
		if *asked <= times {
			for _, delta := range before {
				if !yield(delta) {
					return nil
				}
			}
			return err
		}
		for _, delta := range says("ok") {
			if !yield(delta) {
				return nil
			}
		}
		return nil
	}), asked
}

func consume(ctx context.Context, provider Provider) (text string, err error) {
	collected := &reply{}
	for delta, err := range Retrying(provider, Retry{}).Stream(ctx, Request{}) {
		if err != nil {
			return "", err
		}
		if err := collected.add(delta); err != nil {
			return "", err
		}
	}
	return collected.text.String(), nil
}

func TestRetries(t *testing.T) {
	busy := (&refusal{status: 503, repeat: true}).fault(0)
	for name, c := range map[string]struct {
		err      error
		times    int
		before   []Delta
		asked    int
		ok       bool
		min, max time.Duration
	}{
		"once":                {busy, 1, nil, 2, true, 1500 * time.Millisecond, 2 * time.Second},
		"four times":          {busy, 4, nil, 5, true, 22 * time.Second, 30 * time.Second},
		"five times":          {busy, 5, nil, 5, false, 22 * time.Second, 30 * time.Second},
		"as asked":            {(&refusal{status: 429, repeat: true}).fault(40 * time.Second), 1, nil, 2, true, 40 * time.Second, 40 * time.Second},
		"asked for too long":  {(&refusal{status: 429, repeat: true}).fault(10 * time.Minute), 1, nil, 1, false, 0, 0},
		"refused":             {(&refusal{status: 400}).fault(0), 1, nil, 1, false, 0, 0},
		"cut":                 {cut(errStreamCut), 1, nil, 1, false, 0, 0},
		"after a delta":       {busy, 1, []Delta{{Kind: DeltaText, Text: "a"}}, 1, false, 0, 0},
		"after a tool call":   {busy, 1, []Delta{{Kind: DeltaToolCall}}, 1, false, 0, 0},
		"after counts alone":  {busy, 1, []Delta{{Kind: DeltaUsage}}, 2, true, 1500 * time.Millisecond, 2 * time.Second},
		"never got there":     {fault.RetryIn(0, "x", &unsentError{errors.New("refused")}), 1, nil, 2, true, 1500 * time.Millisecond, 2 * time.Second},
		"the context is over": {context.Canceled, 1, nil, 1, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				provider, asked := failing(c.times, c.err, c.before...)
				started := time.Now()
				text, err := consume(t.Context(), provider)
				if took := time.Since(started); took < c.min || took > c.max {
					t.Errorf("took %v, want %v to %v", took, c.min, c.max)
				}
				if *asked != c.asked || (err == nil) != c.ok || c.ok && text != "ok" {
					t.Errorf("asked %d times: %q %v", *asked, text, err)
				}
			})
		})
	}
}

func TestRetriesEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("the server stops")
		time.AfterFunc(time.Second, func() { cancel(stop) })
		provider, asked := failing(9, (&refusal{status: 500, repeat: true}).fault(0))
		if _, err := consume(ctx, provider); !errors.Is(err, stop) || *asked != 1 {
			t.Errorf("asked %d times: %v", *asked, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a pause that the deadline cuts is not begun
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		provider, _ := failing(9, (&refusal{status: 429, repeat: true}).fault(30*time.Second))
		started := time.Now()
		_, err := consume(ctx, provider)
		if fault.Of(err).RetryAfter != 30*time.Second || time.Since(started) != 0 {
			t.Errorf("after %v: %v", time.Since(started), err)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After", "Sat, 21 Nov 2026 12:00:09 GMT", 9 * time.Second},
		{"Retry-After", "Sat, 21 Nov 2026 11:00:00 GMT", 0},
		{"Retry-After", "99999999999999999999", maxRetryAfter},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "-3", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
	} {
		if got := retryAfter(http.Header{c.name: {c.value}}, now); got != c.want {
			t.Errorf("%s: %s is %v, want %v", c.name, c.value, got, c.want)
		}
	}
}

func TestRefusalsOverHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		answer    recorded
		permanent bool
		after     time.Duration
		says      string
	}{
		"rate":     {recorded{status: 429, header: map[string]string{"Retry-After": "3"}, body: `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`}, false, 3 * time.Second, `429 rate_limit_error: "slow down"`},
		"overload": {recorded{status: 529, body: `{"error":{"type":"overloaded_error","message":"Overloaded"}}`}, false, 0, "529"},
		"server":   {recorded{status: 500, body: "<html>"}, false, 0, "500"},
		"stop it":  {recorded{status: 500, header: map[string]string{"X-Should-Retry": "false"}, body: "x"}, true, 0, "500"},
		"key":      {recorded{status: 401, body: `{"error":{"code":"invalid_api_key","message":"Incorrect API key provided: sk-secret."}}`}, true, 0, "check api_key"},
		"model":    {recorded{status: 404, body: `{"error":"model not found"}`}, true, 0, "check base_url and model"},
		"detail":   {recorded{status: 400, body: `{"message":"bad role"}`}, true, 0, "bad role"},
		"redirect": {recorded{status: 302, header: map[string]string{"Location": "https://elsewhere.example/"}}, true, 0, "elsewhere.example"},
		"page":     {recorded{header: map[string]string{"Content-Type": "text/html"}, body: "<html>"}, true, 0, "text/html"},
	} {
		for _, api := range []string{APIOpenAI, APIAnthropic} {
			t.Run(name+" "+api, func(t *testing.T) {
				var failed error
				for _, err := range newScript(t, c.answer).connect(t, api).Stream(t.Context(), Request{}) {
					failed = err
				}
				carried := fault.Of(failed)
				if carried.Permanent != c.permanent || carried.RetryAfter != c.after {
					t.Errorf("%+v", carried)
				}
				if text := carried.Error(); !strings.Contains(text, c.says) || strings.Contains(text, "sk-secret") {
					t.Errorf("the operator reads %s", text)
				}
				if strings.Contains(carried.Public, "http") || carried.Public == "" {
					t.Errorf("the sender reads %q", carried.Public)
				}
			})
		}
	}
}

func TestLimitsOfTimeAndSize(t *testing.T) {
	half := openAIHello[:len(openAIHello)/2]
	for name, c := range map[string]struct {
		answer     recorded
		connection Connection
		want       error
	}{
		"idle":  {recorded{body: half, stall: true}, Connection{IdleLimit: 30 * time.Millisecond}, errIdleLimit},
		"time":  {recorded{body: half, stall: true}, Connection{TimeLimit: 60 * time.Millisecond}, errTimeLimit},
		"size":  {recorded{body: openAIHello}, Connection{MaxResponseBytes: 300}, nil},
		"short": {recorded{body: half}, Connection{}, errStreamCut},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScript(t, c.answer)
			c.connection.API, c.connection.BaseURL, c.connection.Client = APIOpenAI, server.address, newClient(t)
			provider, err := Connect(c.connection)
			if err != nil {
				t.Fatal(err)
			}
			defer closeIdle(provider)
			var failed error
			for _, err := range provider.Stream(t.Context(), Request{}) {
				failed = err
			}
			carried := fault.Of(failed)
			if failed == nil || c.want != nil && !errors.Is(failed, c.want) || carried.Permanent != (c.want == nil) {
				t.Errorf("%v, permanent %v", failed, carried.Permanent)
			}
		})
	}
}

// A server that is not there is asked again, and then the engine is told to come back.
func TestUnreachableServer(t *testing.T) {
	server := newScript(t, recorded{})
	provider := server.connect(t, APIOpenAI).(*openAI)
	provider.endpoint.address = "http://127.0.0.1:1/v1"
	provider.endpoint.client = newClient(t).Trusting("127.0.0.1:1")
	var failed error
	for _, err := range provider.Stream(t.Context(), Request{}) {
		failed = err
	}
	if _, unsent := errors.AsType[*unsentError](failed); !unsent || fault.Of(failed).Permanent {
		t.Errorf("%v", failed)
	}
}
