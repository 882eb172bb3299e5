//go:build !linux

package doctor

// clockSynchronised is not known here.
func clockSynchronised() (synchronised, known bool) { return false, false }
