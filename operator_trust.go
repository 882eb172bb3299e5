package inbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/fault"
)

// HeldMessages lists messages that wait for the operator, newest first. before is "" or the cursor of
// exchange.TurnFilter; limit is 1 to 500.
func (o *Operator) HeldMessages(ctx context.Context, agent, before string, limit int) ([]exchange.TurnRecord, error) {
	turns, err := o.store.Turns(ctx, exchange.TurnFilter{Agent: agent, States: []string{exchange.StateHeld}, Before: before, Limit: limit})
	return listed(turns), err
}

// ReleaseHeld lets the agent answer a held message. fault.NotFound without such a message, fault.Conflict when it is
// not held any more.
func (o *Operator) ReleaseHeld(ctx context.Context, turnID string) error {
	return o.turns().Release(ctx, turnID)
}

// DropHeld refuses a held message; the reason is kept. Errors as those of ReleaseHeld.
func (o *Operator) DropHeld(ctx context.Context, turnID, reason string) error {
	return o.turns().Drop(ctx, turnID, reason)
}

// turns is the pipeline as far as rows go: a server that runs notices what changed by its queue.
func (o *Operator) turns() *pipeline.Service {
	return pipeline.New(pipeline.Options{Store: o.store.Pipeline()})
}

// Unlink takes an identity out of its person. It is named by its principal, or by its subject or address where only
// one linked identity has it. fault.NotFound when none is linked, fault.Conflict when several are.
func (o *Operator) Unlink(ctx context.Context, name string) (principal string, err error) {
	if err := o.store.Unlink(ctx, name); err == nil || !fault.Is(err, fault.NotFound) {
		return name, err
	}
	principal, err = o.linked(ctx, name)
	if err != nil {
		return "", err
	}
	return principal, o.store.Unlink(ctx, principal)
}

const peoplePage = 500

// linked finds the principal of a linked identity by its subject or address.
func (o *Operator) linked(ctx context.Context, name string) (string, error) {
	found := map[string]bool{}
	for before, more := "", true; more; {
		people, err := o.store.People(ctx, before, peoplePage)
		if err != nil {
			return "", err
		}
		for _, one := range people {
			if one.Subject == name || sameAddress(one.Address, name) {
				found[one.Principal] = true
			}
			before = one.PersonID
		}
		more = len(people) > 0
	}
	switch len(found) {
	case 0:
		return "", fault.Newf(fault.NotFound, "nobody with the principal, subject or address %q is linked; see: inbox people list", name)
	case 1:
		for principal := range found {
			return principal, nil
		}
	}
	return "", fault.Newf(fault.Conflict, "several linked identities have %q; name one by its principal: inbox people list --json", name)
}

func sameAddress(a, b string) bool {
	left, errLeft := identity.ParseAddress(a)
	right, errRight := identity.ParseAddress(b)
	return errLeft == nil && errRight == nil && left == right
}

// AuditRecords lists decisions about trust, newest first.
func (o *Operator) AuditRecords(ctx context.Context, filter exchange.AuditFilter) ([]exchange.AuditRecord, error) {
	records, err := o.store.AuditRecords(ctx, filter)
	return listed(records), err
}

// CreateAdminToken mints a bearer token for the operator API. It opens no agent. Only its hash is kept.
func (o *Operator) CreateAdminToken(ctx context.Context, name string) (string, exchange.Token, error) {
	if !identity.ValidAgentName(name) {
		return "", exchange.Token{}, fault.New(fault.Malformed, "a token's name must be 1 to 64 of A-Z a-z 0-9 . _ - without a dot at either end")
	}
	token, hash := bearer.Mint()
	record := adminToken(name, hash)
	return token, record, o.store.CreateToken(ctx, record)
}

func adminToken(name, hash string) exchange.Token {
	return exchange.Token{
		ID: uuid.Must(uuid.NewV7()).String(), Name: name, Scope: exchange.TokenAdmin, Hash: hash,
		CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
}

// AdminTokenFile is the file in the data directory with the first token of the operator API.
const AdminTokenFile = "admin-token"

// ensureAdminToken gives a new server its first operator token: it writes the token to a file that only this user may
// read, then its hash to the database. A crash in between is mended by the next start, which finds the file. An
// operator who took the file away, or revoked the token, gets no new one.
func ensureAdminToken(ctx context.Context, opened *store.Store, directory string) error {
	path := filepath.Join(directory, AdminTokenFile)
	content, err := os.ReadFile(path)
	if err == nil {
		return registerAdminToken(ctx, opened, strings.TrimSpace(string(content)))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data_dir: cannot read %s: %w", path, cause(err))
	}
	tokens, err := opened.Tokens(ctx)
	if err != nil {
		return err
	}
	for _, token := range tokens {
		if token.Scope == exchange.TokenAdmin {
			return nil
		}
	}
	token, _ := bearer.Mint()
	if err := writePrivate(path, token+"\n"); err != nil {
		return fmt.Errorf("data_dir: cannot write %s: %w", path, cause(err))
	}
	slog.InfoContext(ctx, "the first token of the operator API was written", "file", path)
	return registerAdminToken(ctx, opened, token)
}

// registerAdminToken stores the hash of the file's token unless it is known; a revoked one stays revoked.
func registerAdminToken(ctx context.Context, opened *store.Store, token string) error {
	if len(token) < minAdminToken {
		return nil // emptied by the operator: nothing that could be guessed becomes a key
	}
	hash := bearer.Hash(token)
	if _, found, err := opened.TokenByHash(ctx, hash); found || err != nil {
		return err
	}
	if err := opened.CreateToken(ctx, adminToken("first", hash)); err != nil && !fault.Is(err, fault.Conflict) {
		return err
	}
	return nil
}

const minAdminToken = 40

// writePrivate writes a whole file or none, readable for this user alone.
func writePrivate(path, content string) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".token-*") // made with mode 0600
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
