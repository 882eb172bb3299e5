package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/internal/fault"
)

// waitsForStandby reports whether a session of a server is in a commit that waits for its standby.
func waitsForStandby(server *storetest.Cluster) bool {
	return server.Ask("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != ""
}

// TestNothingIsStoredWithoutASynchronousStandby: a node that requires a synchronous standby stores nothing while PostgreSQL would not wait for one,
// says so when it is asked whether it is ready, and continues without a restart.
func TestNothingIsStoredWithoutASynchronousStandby(t *testing.T) {
	server := storetest.NewCluster(t)
	node := openWith(t, store.Options{URL: storetest.URL(server), RequireSynchronous: true})
	server.Standby() // that it is connected does not help
	refuses := func() bool {
		err := put(t, node, "refused")
		return fault.Is(err, fault.Unavailable) && fault.OutcomeOf(err) == fault.NotDone && strings.Contains(err.Error(), "synchronous_standby_names")
	}

	if !refuses() {
		t.Fatal("a change is stored without a synchronous standby")
	}
	if err := node.Probe(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("the node is ready: %v", err)
	}
	if has(t, node, "refused") {
		t.Error("a refused change is stored")
	}

	server.Set(map[string]string{"synchronous_standby_names": "standby"})
	await.Until(t, "a change is stored with a synchronous standby", func() bool { return put(t, node, "stored") == nil })
	if err := node.Probe(t.Context()); err != nil {
		t.Errorf("the node is not ready: %v", err)
	}

	server.Set(map[string]string{"synchronous_standby_names": ""})
	await.Until(t, "changes are refused again", refuses)
}

// TestCommitWithoutStandbyIsNotAcknowledged: the synchronous standby is gone, and the role's own settings would not wait for it. A commit waits,
// is not acknowledged when the wait ends without the standby, and is there when the standby is back.
func TestCommitWithoutStandbyIsNotAcknowledged(t *testing.T) {
	server := storetest.NewCluster(t)
	standby := server.Standby()
	server.Ask("ALTER ROLE inbox SET synchronous_commit = local")
	server.Set(map[string]string{"synchronous_standby_names": "standby"})
	node := openWith(t, store.Options{URL: storetest.URL(server), RequireSynchronous: true})
	if err := put(t, node, "before"); err != nil {
		t.Fatal(err)
	}
	standby.Stop()

	for name, end := range map[string]func(cancel context.CancelFunc){
		"caller leaves": func(cancel context.CancelFunc) { cancel() },
		"wait is ended": func(context.CancelFunc) {
			server.Ask("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		},
		"session is ended": func(context.CancelFunc) {
			server.Ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() { result <- node.State().Put(ctx, "primary", name, []byte("v"), time.Time{}) }()
			await.Until(t, "the commit waits for the standby", func() bool { return waitsForStandby(server) })

			end(cancel)
			if err := await.Receive(t, result, "the end of the commit"); fault.OutcomeOf(err) != fault.Unknown {
				t.Errorf("the commit ended with %v; want that its outcome is unknown", err)
			}
			await.Until(t, "no session waits any more", func() bool { return !waitsForStandby(server) })
		})
	}

	standby.Start()
	if err := put(t, node, "after"); err != nil {
		t.Errorf("with the standby back: %v", err)
	}
	if !has(t, node, "wait is ended") {
		t.Error("the change that PostgreSQL had stored is not there")
	}
}
