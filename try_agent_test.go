package inbox_test

import (
	"testing"
	"time"

	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
)

// TestTryAgentLeavesNoToken: a test of an agent leaves no token, and removes those that earlier tests left.
func TestTryAgentLeavesNoToken(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]string{"sqlite": "sqlite", "postgres": storetest.Postgres(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := listen(t)
			server := inboxtest.New(t, "", "INBOX_HTTP_LISTEN="+socket.Addr().String(), "INBOX_DATABASE_URL="+database, "INBOX_AGENTS_0_NAME=echo", "INBOX_AGENTS_0_KIND=echo")
			server.Inherit(oneSocket{"http", socket})
			server.Serve()
			here := server.Operator()
			before, err := here.Tokens.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			left := exchange.Token{ID: "019a0000-0000-7000-8000-000000000001", Name: "operator-test-000000000001", Hash: "1", Scope: exchange.TokenPeer, CreatedAt: time.Now(), RevokedAt: time.Now()}
			if err := server.Store().CreateToken(t.Context(), left); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if tried, err := here.TryAgent(t.Context(), "echo", "hello", await.Patience); err != nil || !tried.Answered {
					t.Fatalf("%+v %v", tried, err)
				}
			}

			after, err := here.Tokens.List(t.Context())
			if err != nil || len(after) != len(before) {
				t.Errorf("%d tokens before the tests, and afterwards %+v %v", len(before), after, err)
			}
		})
	}
}
