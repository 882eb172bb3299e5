package operator

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/clock"
	"inbox/internal/config"
	"inbox/internal/fault"
)

// The document with the key by which erased persons are named.
const (
	ErasureKeyNamespace = "erasure"
	ErasureKeyName      = "key"
)

const (
	erasureSpace = "erasure.work"
	erasureLease = "running" // who works on erasures now

	leaseTime = time.Minute
	// contentIdle is how long before a file was last put that is deleted in an erasure: who puts one writes down that it is needed soon after.
	contentIdle = time.Minute
	// tellingTime is how long other servers are told that answers are taken back; then the rest is erased all the same.
	tellingTime = 5 * 24 * time.Hour
	// contentsTime is how long an erasure waits for files that were put just now.
	contentsTime = 10 * time.Minute

	erasePortion = 100
)

// Erasures take persons out of everything that is kept. An erasure is a row: the running server does it and goes on with it after a crash, and so
// does a command on a stopped server, as far as nothing has to be sent.
type Erasures struct {
	store    *store.Store
	delivery *delivery.Service
	cancel   func(ctx context.Context, turnID, reason string) (exchange.TurnRecord, error)
	vault    func(ctx context.Context) (Vault, error)
	files    func() (exchange.Files, error)
	domain   string
	current  func() *config.Config
}

// Receipt says that a person was erased, without saying who.
type Receipt = store.Receipt

// Begin stores an erasure of the person that the name means; by is who wants it, for the receipt. What the person sends later is a new message.
func (e Erasures) Begin(ctx context.Context, who PersonName, by string) (store.Receipt, error) {
	person, err := e.Who(ctx, who)
	if err != nil {
		return store.Receipt{}, err
	}
	pseudonym, err := e.pseudonyms(ctx)
	if err != nil {
		return store.Receipt{}, err
	}
	return e.store.BeginErasure(ctx, person.Names, identifiers(person.Names, pseudonym), by)
}

// identifiers are the hashes by which a receipt knows a person.
func identifiers(names store.PersonNames, pseudonym func(string) string) (hashed []string) {
	for _, principal := range names.Principals {
		hashed = append(hashed, pseudonym(principal))
	}
	for _, address := range names.Addresses {
		hashed = append(hashed, pseudonym(string(address)))
	}
	for _, one := range names.Linked {
		hashed = append(hashed, pseudonym(linkedIdentifier(one)))
	}
	return hashed
}

// linkedIdentifier is what a receipt has the hash of for a linked principal. No principal has a line break.
func linkedIdentifier(one store.LinkedName) string { return one.Agent + "\n" + one.Principal }

// Receipt returns the receipt of an erasure; fault.NotFound when there is none.
func (e Erasures) Receipt(ctx context.Context, id string) (store.Receipt, error) {
	erasure, err := e.store.Erasure(ctx, id)
	return erasure.Receipt, err
}

// Receipts lists receipts, newest first.
func (e Erasures) Receipts(ctx context.Context, before string, limit int) ([]store.Receipt, error) {
	return e.store.Receipts(ctx, before, limit)
}

// pseudonyms names persons by a hash that only this server can make.
func (e Erasures) pseudonyms(ctx context.Context) (func(string) string, error) {
	vault, err := e.vault(ctx)
	if err != nil {
		return nil, err
	}
	fresh := make([]byte, sha256.Size)
	_, _ = rand.Read(fresh) // it never fails
	key, _, err := vault.PutIfAbsent(ctx, ErasureKeyNamespace, ErasureKeyName, fresh, time.Time{})
	if err != nil {
		return nil, err
	}
	return hashWith(key), nil
}

func hashWith(key []byte) func(string) string {
	return func(name string) string {
		sum := hmac.New(sha256.New, key)
		sum.Write([]byte(name))
		return hex.EncodeToString(sum.Sum(nil)[:16])
	}
}

// ErasedNames returns by which hash persons are named who were erased; nil when no one was.
func ErasedNames(ctx context.Context, vault Vault) (func(string) string, error) {
	key, found, err := vault.Get(ctx, ErasureKeyNamespace, ErasureKeyName)
	if err != nil || !found {
		return nil, err
	}
	return hashWith(key), nil
}

// Run does erasures until ctx ends, as they come.
func (e Erasures) Run(ctx context.Context, every time.Duration, failed func(error)) error {
	for {
		if err := e.Work(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		if err := clock.Sleep(ctx, every); err != nil {
			return nil //nolint:nilerr // it was told to end
		}
	}
}

// RunStops cancels the open messages of a person as soon as begun says that an erasure may have begun, until ctx ends. Run does that only after
// it has looked through all messages, and after the erasures before this one. Every node does it, whichever runs the erasure.
func (e Erasures) RunStops(ctx context.Context, begun <-chan struct{}, failed func(error)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-begun:
		}

		open, err := e.store.OpenErasures(ctx, "")
		for _, erasure := range open {
			if erasure.Receipt.Stage == store.EraseFind && erasure.After == "" {
				err = errors.Join(err, e.stopOpen(ctx, erasure))
			}
		}
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
	}
}

// Work goes on with the erasures that are not done, until they are or wait for something. Of several callers one works.
func (e Erasures) Work(ctx context.Context) error {
	open, err := e.store.OpenErasures(ctx, "")
	if err != nil || len(open) == 0 {
		return err
	}
	mine := []byte(rand.Text())
	if _, got, err := e.store.State().PutIfAbsent(ctx, erasureSpace, erasureLease, mine, time.Now().Add(leaseTime)); err != nil || !got {
		return err
	}
	defer func() {
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = e.store.State().Swap(again, erasureSpace, erasureLease, mine, mine, time.Now()) // else it ends by itself
	}()

	var failures []error
	for err == nil && len(open) > 0 { // one that waits or fails does not keep the others
		for _, one := range open {
			if err := e.advance(ctx, one.Receipt.ID, mine); err != nil {
				failures = append(failures, fmt.Errorf("erasure %s: %w", one.Receipt.ID, err))
			}
		}
		open, err = e.store.OpenErasures(ctx, open[len(open)-1].Receipt.ID)
	}
	return errors.Join(append(failures, err)...)
}

// advance does stage after stage, until one waits.
func (e Erasures) advance(ctx context.Context, id string, lease []byte) error {
	for {
		if still, err := e.store.State().Swap(ctx, erasureSpace, erasureLease, lease, lease, time.Now().Add(leaseTime)); err != nil || !still {
			return err
		}
		erasure, err := e.store.Erasure(ctx, id)
		if err != nil || erasure.Receipt.Stage == store.EraseDone {
			return err
		}
		if err := e.stage(ctx, erasure); err != nil {
			return err
		}
		after, err := e.store.Erasure(ctx, id)
		if err != nil || after.Receipt.Stage == erasure.Receipt.Stage {
			return err
		}
	}
}

func (e Erasures) stage(ctx context.Context, erasure store.Erasure) error {
	id := erasure.Receipt.ID
	switch erasure.Receipt.Stage {
	case store.EraseFind:
		return e.store.FindErased(ctx, erasure)
	case store.EraseStop:
		return e.stop(ctx, id)
	case store.EraseEmpty:
		return e.store.EmptyErased(ctx, erasure)
	case store.EraseDerived:
		return e.store.DeriveErased(ctx, erasure)
	case store.EraseTell:
		return e.tell(ctx, erasure)
	case store.EraseContents:
		return e.contents(ctx, erasure)
	case store.EraseClean:
		remains, err := e.store.CleanErased(ctx, id)
		if err != nil {
			return err
		}
		return e.store.EndStage(ctx, id, store.EraseClean, store.EraseDone, nil, append(remains, kept...)...)
	}

	pseudonym, err := e.pseudonyms(ctx)
	if err != nil {
		return err
	}
	if erasure.Receipt.Stage == store.EraseNames {
		return e.store.EraseNames(ctx, erasure, pseudonym)
	}
	return e.store.RemoveErased(ctx, erasure, pseudonym("person "+id))
}

// kept is said in each receipt.
var kept = []string{
	"mail that was sent cannot be recalled; other servers of the fediverse were asked to delete answers, and decide themselves",
	"backups made before, and the server's log, end by their own rules",
	"what others wrote about the person, and entries of the operator's lists of blocks and allows",
}

const reasonErased = "the sender was erased"

// openPage is how many open messages are read at a time.
const openPage = 500

// stopOpen cancels the messages of the person that have not ended. With them the streams of their answers end.
func (e Erasures) stopOpen(ctx context.Context, erasure store.Erasure) error {
	filter := exchange.TurnFilter{ByArrival: true, Limit: openPage + 1, States: []string{
		exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting, exchange.StateHeld,
	}}
	for {
		page, err := e.store.Turns(ctx, filter)
		if err != nil {
			return err
		}

		page, filter.Before = exchange.NextPage(page, openPage, exchange.TurnCursor)
		for _, turn := range page {
			if turn.ID > erasure.Receipt.ID || !erasure.Person.Sent(turn) {
				continue
			}
			if _, err := e.cancel(ctx, turn.ID, reasonErased); !over(err) {
				return err
			}
		}
		if filter.Before == "" {
			return nil
		}
	}
}

// over reports whether a call was done, or was about something that had ended or gone.
func over(err error) bool {
	return err == nil || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) || fault.Is(err, fault.Unsupported)
}

// stop cancels messages that have not ended, takes answers back where their way knows that, and cancels deliveries. It waits for runs to end.
func (e Erasures) stop(ctx context.Context, id string) error {
	running, deletions := false, int64(0)
	for after := ""; ; {
		turns, err := e.store.ErasedTurns(ctx, id, after, erasePortion)
		if err != nil {
			return err
		}
		if len(turns) == 0 {
			break
		}
		after = turns[len(turns)-1]

		for _, turn := range turns {
			if _, err := e.cancel(ctx, turn, reasonErased); !over(err) {
				return err
			}
			answers, err := e.store.AnswersOf(ctx, turn)
			if err != nil {
				return err
			}
			for _, answer := range answers {
				err := e.delivery.Delete(ctx, answer, reasonErased)
				if !over(err) {
					return err
				}
				if err == nil {
					deletions++
				}
			}

			unsent, err := e.store.UnsentOf(ctx, turn, false)
			if err != nil {
				return err
			}
			for _, one := range unsent {
				if err := e.delivery.Cancel(ctx, one); !over(err) {
					return err
				}
			}
			busy, err := e.store.RunningOf(ctx, turn)
			if err != nil {
				return err
			}
			running = running || busy
		}
	}

	if running {
		return nil // again in a moment
	}
	return e.store.EndStage(ctx, id, store.EraseStop, store.EraseEmpty, map[string]int64{"answers taken back": deletions})
}

// tell waits until other servers heard that answers are taken back.
func (e Erasures) tell(ctx context.Context, erasure store.Erasure) error {
	id := erasure.Receipt.ID
	telling := int64(0)
	for after := ""; ; {
		turns, err := e.store.ErasedTurns(ctx, id, after, erasePortion)
		if err != nil {
			return err
		}
		if len(turns) == 0 {
			break
		}
		after = turns[len(turns)-1]
		for _, turn := range turns {
			count, err := e.store.TellingOf(ctx, turn, delivery.SpreadKind)
			if err != nil {
				return err
			}
			telling += count
		}
	}

	switch {
	case telling == 0:
		return e.store.EndStage(ctx, id, store.EraseTell, store.EraseNames, nil)
	case time.Since(erasure.Receipt.RequestedAt) > tellingTime:
		return e.store.EndStage(ctx, id, store.EraseTell, store.EraseNames, map[string]int64{"deletions not delivered": telling})
	}
	return nil
}

// contents deletes native forms and files. Files that were put just now wait for a moment.
func (e Erasures) contents(ctx context.Context, erasure store.Erasure) error {
	if err := e.store.DropOriginals(ctx); err != nil {
		return err
	}
	files, err := e.files()
	if err != nil {
		return err
	}
	blobs, able := files.(store.Blobs)
	if !able {
		return fault.New(fault.Unsupported, "the blob store of this program cannot delete")
	}
	deleted, err := e.store.SweepBlobs(ctx, blobs, contentIdle)
	if err != nil {
		return err
	}
	left, err := e.store.Garbage(ctx, "", 1)
	if err != nil {
		return err
	}

	counts := map[string]int64{"files": int64(deleted)}
	switch {
	case len(left) == 0:
		return e.store.EndStage(ctx, erasure.Receipt.ID, store.EraseContents, store.EraseClean, counts)
	case time.Since(erasure.Receipt.RequestedAt) > contentsTime:
		return e.store.EndStage(ctx, erasure.Receipt.ID, store.EraseContents, store.EraseClean, counts, "files that are also put by others all the time are deleted by the next sweep")
	}
	return e.store.EndStage(ctx, erasure.Receipt.ID, store.EraseContents, store.EraseContents, counts)
}
