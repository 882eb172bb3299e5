package inbox

import (
	"context"
	"log/slog"
	"slices"

	"inbox/adapters/email"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/operator"
)

// suppressions also know the addresses of which only a hash is kept, and which suppressions a proven mail has ended.
type suppressions struct {
	rows   *store.Store
	vault  operator.Vault
	logger *slog.Logger
}

// MailFailed implements email.Suppressions. What a proven mail ended comes first: this failure is newer.
func (s suppressions) MailFailed(ctx context.Context, failure exchange.MailFailure) (suppressed bool, err error) {
	if _, err := s.Suppressed(ctx, []string{failure.Address}); err != nil {
		return false, err
	}
	return s.rows.MailFailed(ctx, failure)
}

// Unsuppress implements email.Suppressions.
func (s suppressions) Unsuppress(ctx context.Context, address string) (lifted bool, err error) {
	return operator.LiftSuppression(ctx, s.rows, s.vault, address)
}

// Suppressed implements email.Suppressions. A delivery asks it, and the rows of turns say what has come since: no accepted mail asks for
// suppressions, and what one node has accepted ends them on every other.
func (s suppressions) Suppressed(ctx context.Context, addresses []string) (found []exchange.Suppression, err error) {
	rows, err := s.stored(ctx, addresses)
	if err != nil {
		return nil, err
	}

	for _, one := range rows {
		wrote, err := s.rows.Wrote(ctx, email.ChannelName, one.Address, one.CreatedAt)
		if err != nil {
			return nil, err
		}
		if !wrote {
			found = append(found, one)
			continue
		}
		if _, err := s.Unsuppress(ctx, one.Address); err != nil {
			return nil, err
		}
		logEnded(ctx, s.logger, one.Address)
	}
	return found, nil
}

// stored are the rows about addresses, under their plain names.
func (s suppressions) stored(ctx context.Context, addresses []string) ([]exchange.Suppression, error) {
	hash, err := operator.ErasedNames(ctx, s.vault)
	if err != nil {
		return nil, err
	}
	if hash == nil {
		return s.rows.Suppressed(ctx, addresses)
	}

	plain, all := map[string]string{}, addresses
	for _, address := range addresses {
		hidden := store.ErasedAddress(hash(address))
		plain[hidden], all = address, append(slices.Clip(all), hidden)
	}
	found, err := s.rows.Suppressed(ctx, all)
	for i := range found {
		if address, is := plain[found[i].Address]; is {
			found[i].Address = address
		}
	}
	return found, err
}

// endSuppressions ends what no delivery has met, so that operators do not see it any more.
func (r *resources) endSuppressions(ctx context.Context) error {
	ended, err := r.store.EndSuppressions(ctx, email.ChannelName)
	for _, address := range ended {
		logEnded(ctx, r.logger, address)
	}
	return err
}

func logEnded(ctx context.Context, logger *slog.Logger, address string) {
	logger.InfoContext(ctx, "mail is sent to an address again, from which a proven mail came", "address", address)
}
