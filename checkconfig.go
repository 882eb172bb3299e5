package inbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"inbox/engine/store"
)

// CheckConfig reports what New would refuse of settings that LoadConfig reads: it makes the server, with a database and a directory that it
// removes afterwards, and lets nothing of it run. The data, the database and the bucket of the settings are not opened, and nothing is sent.
func CheckConfig(ctx context.Context, config *Config) (err error) {
	for _, one := range append([]*Config{config}, config.Hosted...) {
		if err := store.CheckURL(one.DatabaseURL.Reveal()); err != nil {
			return fmt.Errorf("%s: %w", one.Domain, err)
		}
	}

	directory, err := os.MkdirTemp("", "inbox-check-")
	if err != nil {
		return fmt.Errorf("check the configuration: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()

	made, err := open(ctx, rehearsed(config, directory), nil, nil, true)
	if err != nil {
		return err
	}
	return errors.Join(made.now().checkDefaultAgent(), made.Close())
}

// rehearsed are settings with storage of their own below a directory.
func rehearsed(config *Config, directory string) *Config {
	copied := *config
	copied.DataDir, copied.DatabaseURL, copied.SecretKeyFile, copied.BlobURL = directory, "sqlite", "", "file"
	copied.Hosted = make([]*Config, len(config.Hosted))
	for i, one := range config.Hosted {
		copied.Hosted[i] = rehearsed(one, filepath.Join(directory, strconv.Itoa(i)))
	}
	return &copied
}
