package llm_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"inbox/agents/llm"
	"inbox/internal/safehttp"
)

// TestProbeListsModels: a provider is asked for its models, and never for an answer.
func TestProbeListsModels(t *testing.T) {
	var got string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(provider.Close)
	client := safehttp.New(safehttp.Options{AllowPrivate: true})
	t.Cleanup(client.Close)

	for _, c := range []struct{ api, base, want string }{
		{llm.APIOpenAI, "/v1", "GET /v1/models Bearer key"}, {llm.APIAnthropic, "", "GET /v1/models key"}, {llm.APIAnthropic, "/proxy/v1", "GET /proxy/v1/models key"},
	} {
		made, err := llm.Connect(llm.Connection{API: c.api, BaseURL: provider.URL + c.base, APIKey: "key", Client: client})
		if err != nil {
			t.Fatal(err)
		}
		prober, is := made.(llm.Prober)
		if !is {
			t.Fatalf("%s cannot be probed", c.api)
		}
		if err := prober.Probe(t.Context()); err == nil || got != c.want {
			t.Errorf("%s %s: %q, %v; want %q", c.api, c.base, got, err, c.want)
		}
	}
}
