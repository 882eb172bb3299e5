//go:build !linux

package httpserver

import "syscall"

func limitUnsent(_, _ string, _ syscall.RawConn) error { return nil }
