package attacks

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// hugeMails: six forged mails of 20 MB left 138 MB for good.
func (a *watched) hugeMails() {
	var mails [6]forged
	for i := range mails {
		mails[i] = forged{agent: "echo", key: fmt.Sprintf("huge-%d", i), mediaType: "text/plain", body: strings.Repeat("x", 20_000_000)}
		mails[i].text = mails[i].bytes() // before anything is measured
	}
	result := a.attack("A6", "6 forged mails of 20 MB", func(ctx context.Context, heard *answers) {
		eve := forger{w: a.world, source: "62.9.1.7", heard: heard}
		defer eve.end()
		a.spread(ctx, len(mails), 1, func(_, i int) { eve.bring(ctx, mails[i]) })
	})
	a.heardOnly(result, "552", "421")
	a.room(result, 10<<20)
	a.cheap(result, time.Second, 250<<20)
}

// heldMails: what is held for the operator counted against no limit and never ended.
func (a *watched) heldMails() {
	const each = 1 << 20
	result := a.attack("A6", "40 forged mails of 1 MiB from two networks, held", func(ctx context.Context, heard *answers) {
		body := strings.Repeat("y", each)
		eves := []forger{{w: a.world, source: "62.10.1.7", heard: heard}, {w: a.world, source: "62.11.1.7", heard: heard}}
		a.spread(ctx, 40, len(eves), func(network, i int) {
			eves[network].bring(ctx, forged{agent: "echo", key: fmt.Sprintf("held-%d", i), mediaType: "text/plain", body: body})
		})
		for i := range eves {
			eves[i].end()
		}
	}, a.newcomers(3, "unproven mail", func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
		begun, answer := time.Now(), make(chan time.Time, 1)
		var heard answers
		ann := forger{w: a.world, source: fmt.Sprintf("62.12.%d.7", n), heard: &heard}
		ann.bring(ctx, forged{agent: "echo", key: fmt.Sprintf("held-honest-%d", n), mediaType: "text/plain", body: "hello?"})
		ann.end()
		if heard.get("250") != 1 {
			return begun, nil, fmt.Errorf("a mail that proves nothing, from another network: %s", &heard)
		}
		answer <- time.Now() // it is held
		return begun, answer, nil
	}))
	if taken := result.answers.get("250"); taken > 36 { // 20 MiB of each network, with what is made of them
		a.t.Errorf("A6: %d MiB of two networks are held", taken)
	}
	a.room(result, 100<<20)
	a.cheap(result, 200*time.Millisecond, 150<<20)
}

// room demands that an attack left no more on the disk.
func (a *watched) room(r *row, most int64) {
	a.t.Helper()
	if r.disk > most {
		a.t.Errorf("%s %s: %s more on the disk, want at most %s", r.point, r.name, mebibytes(r.disk), mebibytes(most))
	}
}
