package attacks

import (
	"context"
	"fmt"
	"os"
	"testing"

	"inbox/e2e/instance"
)

// binaryVariable names the program under test for the tests in the namespace. The server is started with the environment of the
// test and refuses settings that it does not know, so the name must not begin with INBOX_.
const binaryVariable = "ATTACKS_BINARY"

func TestMain(m *testing.M) {
	if os.Getenv(binaryVariable) != "" {
		code := m.Run()
		printTable()
		os.Exit(code)
	}
	code, err := outside()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// outside builds the program and runs this test again in a network of its own.
func outside() (int, error) {
	directory, err := os.MkdirTemp("", "attacks-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	binary, err := instance.Build(context.Background(), directory)
	if err != nil {
		return 0, err
	}
	return inOwnNetwork(directory, binaryVariable+"="+binary)
}
