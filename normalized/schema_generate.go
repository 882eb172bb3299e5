//go:build ignore

// This program writes the JSON Schemas of the contract into docs/schema. It is run by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"inbox/normalized"
)

func main() {
	const directory = "../docs/schema"
	if err := os.MkdirAll(directory, 0o755); err != nil {
		fail(err)
	}
	for name, body := range normalized.Schemas() {
		if err := os.WriteFile(filepath.Join(directory, name), body, 0o644); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "write schemas:", err)
	os.Exit(1)
}
