//go:build linux || darwin

package disk

import "syscall"

// space asks the file system what a process without privileges may still write.
func space(directory string) (free, total uint64, err error) {
	var found syscall.Statfs_t
	if err := syscall.Statfs(directory, &found); err != nil {
		return 0, 0, err
	}
	size := uint64(found.Bsize)
	return found.Bavail * size, found.Blocks * size, nil
}

// files asks the file system how many files may still be made. Both are 0 where it makes room for them as they come, as btrfs does.
func files(directory string) (free, total uint64, err error) {
	var found syscall.Statfs_t
	if err := syscall.Statfs(directory, &found); err != nil {
		return 0, 0, err
	}
	return found.Ffree, found.Files, nil
}
