package store_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/children"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(crashURL); url != "" {
		crash(url)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(children.Starter))
}

func TestStore(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Bench {
				var lock sync.Mutex
				var notified []string
				s := openWith(t, store.Options{URL: url(t), Notify: func(channel, payload string) {
					lock.Lock()
					defer lock.Unlock()
					notified = append(notified, channel+" "+payload)
				}})
				return storetest.Bench{
					Pipeline: s.Pipeline(), Delivery: s.Deliverer(), Queue: s.Queue(), Records: s, Watched: s, Documents: s.State(),
					Trust: s, Moderation: s, Suppressions: s, Sessions: s, Bridge: s.Bridge(nil), InTx: func(ctx context.Context, work func(storetest.TrustTx) error) error {
						return s.InTx(ctx, func(tx *store.Tx) error { return work(tx) })
					},
					FreeLeases: s.FreeLeases,
					Notified: func() []string {
						lock.Lock()
						defer lock.Unlock()
						return append([]string(nil), notified...)
					},
				}
			})
		})
	}
}
