package channel

import "time"

// SetClock lets the tests of other packages move the time of the marks.
func (m *MemoryMarks) SetClock(now func() time.Time) { m.now = now }
