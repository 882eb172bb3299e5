package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"inbox/engine/notice"
	"inbox/exchange"
	"inbox/internal/fault"
)

const (
	// examineEvery is the interval between two examinations of all pages.
	examineEvery = 7 * 24 * time.Hour
	// examineLook is the interval between two looks whether an examination is due.
	examineLook = time.Minute
	// probeFresh is how old the last probe of the database may be for a notice. While /readyz is asked, a notice causes no probe.
	probeFresh = time.Minute

	examinedNamespace = "examined" // the last examination of the database
	examinedKey       = "pages"

	examination = "examination" // what is due
)

// databaseHealth is what a node found of its database.
type databaseHealth struct {
	probe    atomic.Pointer[probed]
	examined atomic.Pointer[examined]
}

// examined is the result of an examination. It is kept: the pages are as damaged after a restart.
type examined struct {
	At       time.Time `json:"at"`
	Problems []string  `json:"problems"`
}

// checkDatabase reports whether the database takes messages: the probe does what a message does, and the last messages were not refused.
func (e *engine) checkDatabase(ctx context.Context) error {
	err := e.store.Probe(ctx)
	if errors.Is(err, fault.ErrDamaged) {
		err = fault.Wrap(fault.Unavailable, "the database is damaged", err)
	}
	if err == nil {
		err = e.pipeline.StoreRefuses()
	}
	e.health.probe.Store(&probed{time.Now(), err})
	return err
}

// checkPages reports damage, also where messages do not meet it.
func (e *engine) checkPages() error {
	if damage := e.store.Damage(); damage != nil {
		return fault.Wrap(fault.Unavailable, "the database is damaged", damage.Err)
	}
	if last := e.health.examined.Load(); last != nil && len(last.Problems) > 0 {
		return fault.Wrap(fault.Unavailable, "the database is damaged", errors.New(strings.Join(last.Problems, "; ")))
	}
	return nil
}

// observeDatabase says for a notice whether the database is in trouble.
func (e *engine) observeDatabase(ctx context.Context, host string) notice.Observation {
	last := e.health.probe.Load()
	if last == nil || time.Since(last.at) > probeFresh {
		ctx, cancel := context.WithTimeout(ctx, probeLimit)
		_ = e.checkDatabase(ctx)
		cancel()
		last = e.health.probe.Load()
	}

	err := e.checkPages()
	if err == nil {
		err = last.err
	}
	observation := notice.Observation{Kind: exchange.NoticeDatabase, Subject: host + ": database of " + e.config.Domain, Bad: err != nil}
	switch {
	case errors.Is(err, fault.ErrDamaged), err != nil && e.checkPages() != nil:
		observation.Reason = "it is damaged: stop the server, keep a copy of the files, and restore the newest backup with inbox restore"
	case err != nil:
		observation.Reason = "messages are refused: " + fault.InWords(err)
	}
	return observation
}

// examine has the pages of the database examined once a week, and when damage was met or known since before the start, until ctx ends.
func (e *engine) examine(ctx context.Context) error {
	if value, found, err := e.store.State().Get(ctx, examinedNamespace, examinedKey); err == nil && found {
		var last examined
		if json.Unmarshal(value, &last) == nil {
			e.health.examined.Store(&last)
		}
	}

	ticker := time.NewTicker(examineLook)
	defer ticker.Stop()
	began := time.Now()
	for {
		if e.examineNow(ctx, began) {
			e.examineOnce(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// examineNow reports whether an examination is due.
func (e *engine) examineNow(ctx context.Context, began time.Time) bool {
	last := e.health.examined.Load()
	if damage := e.store.Damage(); damage != nil && (last == nil || last.At.Before(damage.At)) {
		return true
	}
	if last != nil && len(last.Problems) > 0 && last.At.Before(began) {
		return true
	}
	return e.due(ctx, examination, examineEvery)
}

func (e *engine) examineOnce(ctx context.Context) {
	problems, able, err := e.store.Examine(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		e.logger.WarnContext(ctx, "the pages of the database could not be examined; will retry", "error", err)
		_ = e.store.State().Delete(ctx, retentionNamespace, examination) // it is due again
		return
	case err != nil || !able:
		return
	}

	result := examined{time.Now(), problems}
	e.health.examined.Store(&result)
	if len(problems) > 0 && e.store.Damage() == nil { // else it is in the log
		e.logger.ErrorContext(ctx, "the database is damaged where no message met it; restore the newest backup with inbox restore", "problems", strings.Join(problems, "; "))
	}
	value, err := json.Marshal(result)
	if err == nil {
		err = e.store.State().Put(ctx, examinedNamespace, examinedKey, value, time.Now().Add(2*examineEvery))
	}
	if err != nil && ctx.Err() == nil {
		e.logger.WarnContext(ctx, "the result of the examination is not kept", "error", err)
	}
}
