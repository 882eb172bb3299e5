//go:build !linux

package systemd

// There is no systemd elsewhere.
func monotonicMicros() int64 { return 0 }
