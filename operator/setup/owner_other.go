//go:build !unix

package setup

import "io/fs"

// keepOwner does nothing: files take the owner of their directory.
func keepOwner(string, fs.FileInfo) error { return nil }
