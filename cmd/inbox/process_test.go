package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCgroupLimit(t *testing.T) {
	root := t.TempDir()
	for path, content := range map[string]string{
		"memory.max": "max\n", "system.slice/memory.max": "2147483648\n", "system.slice/inbox.service/memory.max": "max\n",
		"small/memory.max": "104857600\n", "broken/memory.max": "many\n",
		"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/docker/memory.limit_in_bytes": "536870912\n",
	} {
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for membership, want := range map[string]int64{
		"0::/system.slice/inbox.service\n": 2 << 30,
		"0::/\n":                           0,
		"0::/small\n":                      100 << 20,
		"0::/broken\n":                     0,
		"0::/not/seen/here\n":              0,
		"0::/../../small\n":                100 << 20,
		"12:pids:/x\n4:memory:/docker/abc\n1:name=systemd:/x\n": 512 << 20,
		"4:cpu,memory:/docker\n0::/small\n":                     100 << 20,
		"4:memory:/\n":                                          0,
		"nothing":                                               0,
		"":                                                      0,
	} {
		if got := cgroupLimit(root, []byte(membership)); got != want {
			t.Errorf("%q: %d, want %d", membership, got, want)
		}
	}
}
