package store

import (
	"strconv"
	"strings"
	"time"
)

// micros is how instants are stored; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// microsOrNow is micros for a caller that need not say when.
func microsOrNow(t time.Time) int64 {
	if t.IsZero() {
		return nowMicros()
	}
	return t.UnixMicro()
}

func instant(stored int64) time.Time {
	if stored == 0 {
		return time.Time{}
	}
	return time.UnixMicro(stored).UTC()
}

// now is the database's idea of the present where the caller did not say.
func nowMicros() int64 { return time.Now().UnixMicro() }

// flag is how a truth is stored: SQLite and PostgreSQL share no boolean that both index alike.
func flag(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

// placeholders returns "$from,$from+1,…" for n arguments.
func placeholders(from, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(from + i))
	}
	return b.String()
}
