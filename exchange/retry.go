package exchange

import "time"

// RetryFilter selects failed turns that the operator wants to run again. Empty fields do not restrict.
type RetryFilter struct {
	Agent string
	Since time.Time // only those that failed later
}

// RetryResult says what became of them.
type RetryResult struct {
	Retried int           `json:"retried"`
	Skipped int           `json:"skipped"`
	More    bool          `json:"more"` // there are others: call again
	Turns   []RetriedTurn `json:"turns"`
}

// RetriedTurn is one of them.
type RetriedTurn struct {
	ID       string    `json:"id"`
	Agent    string    `json:"agent"`
	Sender   string    `json:"sender"`
	FailedAt time.Time `json:"failed_at"`
	Failure  string    `json:"failure,omitempty"`
	Skipped  string    `json:"skipped,omitempty"` // why it does not run again; empty = it does
}
