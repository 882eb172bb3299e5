//go:build !linux

package operator

// clockSynchronised is not known here.
func clockSynchronised() (synchronised, known bool) { return false, false }
