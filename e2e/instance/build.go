package instance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles the program into the directory and returns the path of the binary.
func Build(ctx context.Context, directory string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}

	return BuildIn(ctx, root, directory)
}

// BuildIn compiles the program of the module at root into the directory and returns the path of the binary.
func BuildIn(ctx context.Context, root, directory string) (string, error) {
	binary := filepath.Join(directory, "inbox")
	command := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/inbox")
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0")

	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, output)
	}
	return binary, nil
}

// Root is the directory of the module.
func Root() (string, error) {
	output, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(string(bytes.TrimSpace(output))), nil
}
