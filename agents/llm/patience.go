package llm

import (
	"io"
	"time"
)

// patientReader gives up when one read takes longer than the limit. The clock stands still between reads, because the
// time that the engine needs for a delta is not the provider's.
type patientReader struct {
	source io.Reader
	limit  time.Duration
	giveUp func()
	timer  *time.Timer
	err    error // the last one
}

// Read reads from the source.
func (p *patientReader) Read(into []byte) (int, error) {
	if p.timer == nil {
		p.timer = time.AfterFunc(p.limit, p.giveUp)
	} else {
		p.timer.Reset(p.limit)
	}
	defer p.timer.Stop()
	n, err := p.source.Read(into)
	p.err = err
	return n, err
}
