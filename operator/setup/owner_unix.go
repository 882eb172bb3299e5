//go:build unix

package setup

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner of the one that it replaces.
func keepOwner(path string, former fs.FileInfo) error {
	owner, is := former.Sys().(*syscall.Stat_t)
	if !is || os.Getuid() != 0 {
		return nil // only an administrator can, and others own what they may replace or its directory
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid))
}
