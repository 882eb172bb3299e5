// Package disk tells whether the disk below a directory is nearly full, cheaply enough to be asked for every message. It
// frees nothing, and it knows the disk of one directory only: a database elsewhere reports its own.
package disk

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var free = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "inbox_disk_free_bytes", Help: "Free bytes on the disk of data_dir, as seen a second ago at most while messages come."})

var freeFiles = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "inbox_disk_free_files", Help: "Files that can still be made on the disk of data_dir (free inodes), as seen a second ago at most while messages come; 0 where the file system has no bound."})

// Of a disk without a configured bound the last twentieth is kept free, and at most usualKept.
const (
	usualShare = 20
	usualKept  = 1 << 30
	lookEvery  = time.Second
)

// Of a file system with a bound of files the last twentieth is kept free, and at most usualFiles: a message makes a few files at most, and
// a second passes between two looks.
const usualFiles = 10_000

// Options of a Guard. Directory is required.
type Options struct {
	Directory string
	Keep      int64  // bytes that stay free; 0 = the guard never says full, negative = a twentieth of the disk, at most 1 GiB
	Times     int64  // how many times Keep stay free; default 1
	For       string // whose messages are refused, for the log; default: all
	// Space returns free and total bytes; default: what the operating system says. Where it fails the disk counts as free:
	// the write itself finds out.
	Space  func(directory string) (free, total uint64, err error)
	Files  func(directory string) (free, total uint64, err error) // the same of files; a total of 0 = there is no bound
	Logger *slog.Logger                                           // default: slog.Default
	Now    func() time.Time                                       // default: time.Now
}

// Guard remembers for a second what the disk said, less what was let in since: a small disk is not overrun between two looks.
// It may be asked by many at once; nil is never full.
type Guard struct {
	options Options
	mu      sync.Mutex
	looked  time.Time
	full    bool
	known   bool  // the last look succeeded
	left    int64 // free bytes at the last look, less what was let in since
	bound   int64
}

// NewGuard makes a guard.
func NewGuard(options Options) *Guard {
	if options.Space == nil {
		options.Space = space
	}
	if options.Files == nil {
		options.Files = files
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Guard{options: options}
}

// Full reports whether nothing more should be stored.
func (g *Guard) Full() bool {
	if g == nil || g.options.Keep == 0 {
		return false
	}

	now := g.options.Now()
	g.mu.Lock()
	defer g.mu.Unlock()

	if since := now.Sub(g.looked); since >= 0 && since < lookEvery && (g.full || !g.short()) {
		return g.full
	}

	g.looked = now
	left, bound, err := g.look()
	g.known, g.left, g.bound = err == nil, left, bound
	filesLeft, filesBound, _ := g.lookFiles() // unknown counts as free, as bytes do
	switch full := err == nil && (left < bound || filesLeft < filesBound); {
	case err != nil:
		g.options.Logger.Warn("the free space of the disk is not known", "directory", g.options.Directory, "error", err)
		g.full = false
	case full != g.full:
		g.full = full
		g.tell(full, left, bound, filesLeft, filesBound)
	}

	return g.full
}

// short reports whether what was let in since the last look may have filled the disk.
func (g *Guard) short() bool { return g.known && g.left < g.bound }

// Admit notes that so many bytes are about to be written. What comes next is asked of the disk again as soon as they may have
// filled it, and not only after a second.
func (g *Guard) Admit(bytes int64) {
	if g == nil || g.options.Keep == 0 || bytes <= 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left -= bytes; g.left < -1<<60 { // the disk was not looked at
		g.left = -1 << 60
	}
}

// Free returns how many bytes a process without privileges may still write on the disk of a directory.
func Free(directory string) (int64, error) {
	free, _, err := space(directory)
	if err != nil {
		return 0, fmt.Errorf("free space of %s: %w", directory, err)
	}
	return int64(min(free, 1<<62)), nil
}

// Look returns the free bytes, and below how many the disk counts as full.
func (g *Guard) Look() (left, bound int64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.look()
}

func (g *Guard) look() (left, bound int64, err error) {
	available, total, err := g.options.Space(g.options.Directory)
	if err != nil {
		return 0, 0, fmt.Errorf("free space of %s: %w", g.options.Directory, err)
	}

	free.Set(float64(available))
	if bound = g.options.Keep; bound < 0 {
		bound = int64(min(total/usualShare, usualKept))
	}

	bound *= max(g.options.Times, 1)
	return int64(min(available, 1<<62)), bound, nil
}

// LookFiles returns how many files can still be made, and below how many the disk counts as full; both are 0 where the file system has
// no bound.
func (g *Guard) LookFiles() (left, bound int64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lookFiles()
}

func (g *Guard) lookFiles() (left, bound int64, err error) {
	available, total, err := g.options.Files(g.options.Directory)
	if err != nil {
		return 0, 0, fmt.Errorf("free files of %s: %w", g.options.Directory, err)
	}
	freeFiles.Set(float64(available))
	return int64(min(available, 1<<62)), int64(min(total/usualShare, usualFiles)), nil
}

func (g *Guard) tell(full bool, left, bound, filesLeft, filesBound int64) {
	if full && filesLeft < filesBound {
		g.options.Logger.Error("the file system has nearly no inodes left: no message is accepted until files are removed", "of", cmp.Or(g.options.For, "all"), "directory", g.options.Directory, "free", filesLeft, "wanted", filesBound)
		return
	}
	if full {
		g.options.Logger.Error("the disk is nearly full: no message is accepted until there is room", "of", cmp.Or(g.options.For, "all"), "directory", g.options.Directory, "free", left, "wanted", bound)
		return
	}
	g.options.Logger.Info("there is room on the disk again", "directory", g.options.Directory, "free", left)
}
