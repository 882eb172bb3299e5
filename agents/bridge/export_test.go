package bridge

import "time"

// SetClock lets the tests of other packages move the time of the leases.
func (m *Memory) SetClock(now func() time.Time) { m.now = now }
