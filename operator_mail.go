package inbox

import (
	"context"
	"strings"

	"inbox/exchange"
	"inbox/internal/fault"
)

// Suppressions lists the addresses to which no mail is sent any more, in order of the address.
func (o *Operator) Suppressions(ctx context.Context, filter exchange.SuppressionFilter) ([]exchange.Suppression, error) {
	found, err := o.store.Suppressions(ctx, filter)
	return listed(found), err
}

// Unsuppress lets mail go to an address again; fault.NotFound when it is not suppressed.
func (o *Operator) Unsuppress(ctx context.Context, address string) error {
	address = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(address)), "@")
	lifted, err := o.store.Unsuppress(ctx, address)
	if err == nil && !lifted {
		err = fault.Newf(fault.NotFound, "%s is not suppressed; see: inbox mail suppressed list", address)
	}
	return err
}
