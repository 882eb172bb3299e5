// Package packed reads files of the tree that the program holds compressed, as ZIP archives, so that it weighs less by them. Command
// internal/packed/pack makes an archive; package packedtest holds it to the files.
package packed

import (
	"archive/zip"
	"bytes"
	"io/fs"
)

// Files returns the files of an archive that is part of the program. It panics for what is none.
func Files(archive []byte) fs.FS {
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		panic("packed: an archive in the program: " + err.Error())
	}
	return files
}

// File returns one file of an archive that is part of the program. It panics where there is none.
func File(files fs.FS, name string) []byte {
	content, err := fs.ReadFile(files, name)
	if err != nil {
		panic("packed: a file in the program: " + err.Error())
	}
	return content
}
