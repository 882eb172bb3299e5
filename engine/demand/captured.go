package demand

import (
	"context"

	"inbox/exchange"
	"inbox/normalized"
)

// Captured returns the response of a turn whose money was being taken when the process died: the agent need not work
// again, Capture goes on with it. Errors (fault.Unavailable) mean that the same call should be repeated.
func (s *Service) Captured(ctx context.Context, turn exchange.TurnRecord) (response normalized.Response, begun bool, err error) {
	issuance, paid, err := s.paid(ctx, turn)
	if err != nil || !paid {
		return response, false, err
	}
	if kept := notesOf(issuance); kept.Capture != nil && kept.Capture.Response != nil {
		return *kept.Capture.Response, true, nil
	}
	return response, false, nil
}
