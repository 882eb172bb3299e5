package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// WritePrivate writes a whole file or none, readable for this user alone.
func WritePrivate(path, content string) error {
	written, err := WriteBeside(path, content)
	if err != nil {
		return err
	}
	if err := os.Rename(written, path); err != nil {
		return errors.Join(err, os.Remove(written))
	}
	return nil
}

// WriteBeside writes a file of a free name in the directory of another one, readable for this user alone.
func WriteBeside(path, content string) (written string, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*") // made with mode 0600
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}

// Cause cuts the operation and path off a file error, for a sentence that names them itself.
func Cause(err error) error {
	if path, is := errors.AsType[*fs.PathError](err); is {
		return path.Err
	}
	return err
}
