//go:build !linux

package inbox

// clockSynchronised is not known here.
func clockSynchronised() (synchronised, known bool) { return false, false }
