package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"inbox/engine/store"
	"inbox/identity"
	"inbox/internal/disk"
)

// ReceiptsFile is the file beside backups that has the receipts of erasures, so that a restore of an older one does them again.
const ReceiptsFile = "erasures.json"

// KeptReceipts are receipts of one domain whose names are hashed with one key.
type KeptReceipts struct {
	Domain   string    `json:"domain"`
	Key      string    `json:"key"` // of the hashes, sealed with the secret key of the server
	Receipts []Receipt `json:"receipts"`
}

// keptFile is the file. It names no one: without the secret key not even a guess can be tried.
type keptFile struct {
	Domains []KeptReceipts `json:"domains"`
}

// maxReceiptsFile bounds the file in memory: a receipt has about a kilobyte.
const maxReceiptsFile = 256 << 20

// ReadReceipts reads a file of receipts. Errors are fs.ErrNotExist, and of a file that is no such file.
func ReadReceipts(file string) ([]KeptReceipts, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxReceiptsFile {
		return nil, fmt.Errorf("%s has %d bytes: a file of receipts has at most %d", file, info.Size(), maxReceiptsFile)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	var kept keptFile
	if err := json.Unmarshal(content, &kept); err != nil {
		return nil, fmt.Errorf("%s has no receipts of erasures: %w; write it again with: inbox erase --list --receipts FILE", file, err)
	}
	for _, one := range kept.Domains {
		for _, receipt := range one.Receipts {
			if len(receipt.ID) != 36 || one.Domain == "" || one.Key == "" {
				return nil, fmt.Errorf("%s has a receipt of %q that cannot be read: write the file again with: inbox erase --list --receipts FILE", file, one.Domain)
			}
		}
	}
	return kept.Domains, nil
}

// KnownErasures are the erasures of one domain, which a backup takes along and a restore does again.
type KnownErasures struct {
	Store  *store.Store
	Domain string
}

// KeepReceipts writes the receipts into a file; see KnownErasures.Keep.
func (e Erasures) KeepReceipts(ctx context.Context, file string) (count int, err error) {
	return KnownErasures{e.store, e.domain}.Keep(ctx, file)
}

// Keep writes the receipts of the domain into a file, beside those that are there: of other domains, and of erasures that this
// database does not know. It returns how many of this domain the file has. A server that never erased anyone leaves the file as it is.
func (k KnownErasures) Keep(ctx context.Context, file string) (count int, err error) {
	key, found, err := k.Store.State().Get(ctx, ErasureKeyNamespace, ErasureKeyName)
	if err != nil || !found {
		return 0, err
	}
	own := map[string]Receipt{}
	for before := ""; ; {
		page, err := k.Store.Receipts(ctx, before, 500)
		if err != nil {
			return 0, err
		}
		for _, receipt := range page {
			own[receipt.ID], before = receipt, receipt.ID
		}
		if len(page) < 500 {
			break
		}
	}

	domains, err := ReadReceipts(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	at := slices.IndexFunc(domains, func(one KeptReceipts) bool { return one.Domain == k.Domain && one.Key == string(key) })
	if at < 0 {
		at, domains = len(domains), append(domains, KeptReceipts{Domain: k.Domain, Key: string(key)})
	}
	for _, receipt := range domains[at].Receipts {
		if _, known := own[receipt.ID]; !known {
			own[receipt.ID] = receipt
		}
	}
	domains[at].Receipts = nil
	for _, id := range slices.Sorted(maps.Keys(own)) {
		domains[at].Receipts = append(domains[at].Receipts, own[id])
	}

	content, err := json.MarshalIndent(keptFile{domains}, "", "\t")
	if err != nil {
		return 0, fmt.Errorf("encode receipts: %w", err)
	}
	if err := disk.WritePrivate(file, string(content)+"\n"); err != nil {
		return 0, fmt.Errorf("cannot write %s: %w", file, disk.Cause(err))
	}
	return len(own), nil
}

// RepeatedErasures says what became of receipts in a database that is older than they are.
type RepeatedErasures struct {
	Known   int `json:"known"`   // the database has them
	Begun   int `json:"begun"`   // something of the person is here: the server erases it when it starts
	Nothing int `json:"nothing"` // nothing of the person is here: the receipt was stored
}

// Repeat stores the erasures of the domain that the database does not know, each for what came before it. A person is found by the
// hashes of the receipt: of principals and proven addresses that rows have, and of the principal that an address has by mail. open opens a key as
// KeptReceipts has it.
func (k KnownErasures) Repeat(ctx context.Context, kept []KeptReceipts, open func(sealed string) ([]byte, error)) (done RepeatedErasures, err error) {
	names := map[string]store.PersonNames{} // by receipt
	var fresh []Receipt
	for _, group := range kept {
		if group.Domain != k.Domain {
			continue
		}
		unknown, err := k.unknown(ctx, group.Receipts)
		if err != nil {
			return done, err
		}
		done.Known += len(group.Receipts) - len(unknown)
		if len(unknown) == 0 {
			continue
		}

		key, err := open(group.Key)
		if err != nil {
			return done, fmt.Errorf("the key of the receipts of erasures does not open: %w", err)
		}
		if err := k.findHashed(ctx, unknown, hashWith(key), names); err != nil {
			return done, err
		}
		// Addresses that take no mail are known by the same hashes.
		if _, _, err := k.Store.State().PutIfAbsent(ctx, ErasureKeyNamespace, ErasureKeyName, []byte(group.Key), time.Time{}); err != nil {
			return done, err
		}
		fresh = append(fresh, unknown...)
	}

	for _, receipt := range fresh {
		found, here := names[receipt.ID]
		stored, err := k.Store.RepeatErasure(ctx, receipt, found)
		switch {
		case err != nil:
			return done, err
		case !stored:
			done.Known++
		case here:
			done.Begun++
		default:
			done.Nothing++
		}
	}
	return done, nil
}

func (k KnownErasures) unknown(ctx context.Context, receipts []Receipt) (unknown []Receipt, err error) {
	known := map[string]bool{}
	for before := ""; ; {
		page, err := k.Store.Receipts(ctx, before, 500)
		if err != nil {
			return nil, err
		}
		for _, receipt := range page {
			known[receipt.ID], before = true, receipt.ID
		}
		if len(page) < 500 {
			break
		}
	}
	for _, receipt := range receipts {
		if !known[receipt.ID] {
			unknown = append(unknown, receipt)
		}
	}
	return unknown, nil
}

// findHashed adds the names that are here to the receipts that have their hashes.
func (k KnownErasures) findHashed(ctx context.Context, receipts []Receipt, hash func(string) string, names map[string]store.PersonNames) error {
	wanted := map[string][]string{} // receipts by hash
	for _, receipt := range receipts {
		for _, hashed := range receipt.Identifiers {
			wanted[hashed] = append(wanted[hashed], receipt.ID)
		}
	}
	looked, lookedFor := map[string]bool{}, map[store.LinkedName]bool{}
	principal := func(name string) {
		if name == "" || looked[name] {
			return
		}
		looked[name] = true
		for _, id := range wanted[hash(name)] {
			found := names[id]
			found.Principals = append(found.Principals, name)
			names[id] = found
		}
	}

	linked := func(name, agent string) {
		one := store.LinkedName{Principal: name, Agent: agent}
		if name == "" || agent == "" || lookedFor[one] {
			return
		}
		lookedFor[one] = true
		for _, id := range wanted[hash(linkedIdentifier(one))] {
			found := names[id]
			found.Linked = append(found.Linked, one)
			names[id] = found
		}
	}

	return k.Store.EachName(ctx, func(name, agent string, address identity.ProvenAddress) {
		principal(name)
		linked(name, agent)
		if address == "" || looked[string(address)] {
			return
		}
		looked[string(address)] = true
		for _, hashed := range slices.Compact([]string{hash(string(address)), hash(strings.ToLower(string(address)))}) { // older receipts have lower case
			for _, id := range wanted[hashed] {
				found := names[id]
				found.Addresses = append(found.Addresses, address)
				names[id] = found
			}
		}
		principal(store.MailPrincipal(k.Domain, address))
	})
}
