package doctor

import (
	"context"
	"sync"
	"time"

	"inbox/internal/fault"
)

// examinationLimit bounds what a doctor's round may take where a person waits for it.
const examinationLimit = 45 * time.Second

// Examinations are rounds of the doctor on a running server, one at a time; the last one is remembered.
type Examinations struct {
	Doctor *Doctor

	running sync.Mutex
	mu      sync.Mutex
	last    Examination
}

// Examination is what one round found.
type Examination struct {
	At       time.Time `json:"at"` // when it ended
	Findings []Finding `json:"findings"`
}

// Run looks at everything once, no longer than 45 seconds. fault.Conflict while another round runs.
func (e *Examinations) Run(ctx context.Context) (Examination, error) {
	if !e.running.TryLock() {
		return Examination{}, fault.New(fault.Conflict, "the doctor is looking already; its findings are here in a moment")
	}
	defer e.running.Unlock()

	ctx, cancel := context.WithTimeout(ctx, examinationLimit)
	defer cancel()
	found, err := e.Doctor.Examine(ctx, Options{})
	if err != nil {
		return Examination{}, err
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = Examination{At: time.Now().UTC().Truncate(time.Millisecond), Findings: append([]Finding{}, found...)}
	return e.last, nil
}

// Last returns what the last round of this process found; its time is zero before the first one.
func (e *Examinations) Last() Examination {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}
