// Command pack writes the files of a directory to a ZIP archive: pack ARCHIVE DIRECTORY. Their names begin with that of the directory. The same
// files make the same bytes.
package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "use: pack ARCHIVE DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(archive, directory string) error {
	var packed bytes.Buffer
	writer := zip.NewWriter(&packed)
	writer.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })

	err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error { //nolint:gosec // a developer names the directory
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name) //nolint:gosec // source of the tree
		if err != nil {
			return err
		}
		file, err := writer.Create(filepath.ToSlash(name))
		if err != nil {
			return err
		}
		_, err = file.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return os.WriteFile(archive, packed.Bytes(), 0o644) //nolint:gosec // a file of the tree
}
