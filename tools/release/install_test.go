package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// installation runs install.sh of a release as an operator does.
type installation struct {
	t       *testing.T
	release string // directory with archives, install.sh and SHA256SUMS
	root    string // DESTDIR
}

const installedProgram = "opt/inbox/bin/inbox"

func (i installation) program() string { return filepath.Join(i.root, installedProgram) }

// run calls install.sh with DESTDIR and a prefix of the test.
func (i installation) run(arguments ...string) (said string, err error) {
	i.t.Helper()
	all := append([]string{filepath.Join(i.release, installer), "--destdir", i.root, "--prefix", "/opt/inbox", "--config", "/srv/inbox"}, arguments...)
	command := exec.CommandContext(i.t.Context(), "sh", all...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + i.t.TempDir()}
	output, err := command.CombinedOutput()
	return string(output), err
}

func (i installation) succeeds(arguments ...string) string {
	i.t.Helper()
	said, err := i.run(arguments...)
	if err != nil {
		i.t.Fatalf("install.sh %q: %v\n%s", arguments, err, said)
	}
	return said
}

// fails checks what install.sh says, and that it installs and changes nothing.
func (i installation) fails(want string, arguments ...string) {
	i.t.Helper()
	before := i.files()
	said, err := i.run(arguments...)
	if err == nil || !strings.Contains(said, "install.sh: ") || !strings.Contains(said, want) {
		i.t.Errorf("install.sh %q: %v, want %q in\n%s", arguments, err, want, said)
	}
	if after := i.files(); !slices.Equal(before, after) {
		i.t.Errorf("install.sh %q failed and left %q; before there was %q", arguments, after, before)
	}
}

// files lists the installed files, with the times of their last changes.
func (i installation) files() (list []string) {
	i.t.Helper()
	err := filepath.WalkDir(i.root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		about, err := entry.Info()
		if err == nil {
			list = append(list, strings.TrimPrefix(path, i.root+"/")+" "+about.Mode().String()+" "+about.ModTime().Format(time.RFC3339Nano))
		}
		return err
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return list
}

// publish makes archives of the program under some versions, with install.sh and sums, as a release has them.
func publish(t *testing.T, program string, versions ...string) (directory string) {
	t.Helper()
	directory = t.TempDir()
	for _, version := range versions {
		name := "inbox_" + version + "_linux_" + runtime.GOARCH
		if err := pack(filepath.Join(directory, name+".tar.gz"), name, program, time.Unix(moment, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyInstaller(directory); err != nil {
		t.Fatal(err)
	}
	if err := sums(directory); err != nil {
		t.Fatal(err)
	}
	return directory
}

func TestInstall(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	program := filepath.Join(t.TempDir(), "inbox")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags", "-s -w -X inbox.Version=1.9.0", "-o", program, "./cmd/inbox")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	current, others := publish(t, program, "1.9.0"), publish(t, program, "1.9.0-rc1", "1.10.0")
	in := func(t *testing.T, release string) installation {
		t.Helper()
		return installation{t: t, release: release, root: t.TempDir()}
	}

	t.Run("directory", func(t *testing.T) {
		i := in(t, current)
		said := i.succeeds()
		if !strings.Contains(said, "inbox 1.9.0 (") || !strings.Contains(said, "/opt/inbox/bin/inbox init --dir /srv/inbox") {
			t.Errorf("it says\n%s", said)
		}
		i.holds()
	})
	t.Run("address", func(t *testing.T) {
		server := httptest.NewServer(http.FileServer(http.Dir(current)))
		defer server.Close()
		i := in(t, current)
		i.fails("could not be downloaded", "--from", server.URL+"/elsewhere")
		i.succeeds("--from", server.URL)
		i.holds()
	})
	t.Run("wrong checksum", func(t *testing.T) {
		damaged := t.TempDir()
		if err := os.CopyFS(damaged, os.DirFS(current)); err != nil {
			t.Fatal(err)
		}
		name := "inbox_1.9.0_linux_" + runtime.GOARCH + ".tar.gz"
		archive, list := filepath.Join(damaged, name), filepath.Join(damaged, "SHA256SUMS")
		content, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		wrong := regexp.MustCompile(`[0-9a-f]{64}(  inbox_)`).ReplaceAll(content, []byte(strings.Repeat("0", 64)+"${1}"))
		if err := os.WriteFile(list, wrong, 0o600); err != nil { // the archive itself can be unpacked
			t.Fatal(err)
		}
		in(t, damaged).fails("is not the file that SHA256SUMS describes")
		if err := os.Remove(archive); err != nil {
			t.Fatal(err)
		}
		in(t, damaged).fails("which its SHA256SUMS names")
	})
	t.Run("versions", func(t *testing.T) {
		i := in(t, current)
		i.succeeds()
		i.succeeds() // again
		i.release = others
		i.fails("several versions")
		i.fails("has no version 2.0.0", "--version", "2.0.0")
		i.fails("is version 1.9.0, which is newer than 1.9.0-rc1", "--version", "1.9.0-rc1")
		i.succeeds("--version", "1.9.0-rc1", "--force")
		i.succeeds("--version", "1.10.0")

		if err := os.WriteFile(i.program(), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		i.fails("of version unknown", "--version", "1.10.0")
	})
	t.Run("running", func(t *testing.T) {
		i := in(t, current)
		i.succeeds()
		server := exec.CommandContext(t.Context(), i.program(), "serve")
		server.Dir = t.TempDir()
		server.Env = []string{"INBOX_HTTP_LISTEN=127.0.0.1:0", "INBOX_PUBLIC_URL=http://localhost:8080", "INBOX_SMTP_LISTEN=off"}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
		i.fails("is running as process ")
		i.succeeds("--force")
	})
	t.Run("platform", func(t *testing.T) {
		tools := t.TempDir()
		for machine, want := range map[string]string{"Linux riscv64": "no release is for Linux on", "FreeBSD amd64": "no release is for FreeBSD"} {
			system, processor, _ := strings.Cut(machine, " ")
			text := "#!/bin/sh\nif [ \"$1\" = -m ]; then echo " + processor + "; else echo " + system + "; fi\n"
			if err := os.WriteFile(filepath.Join(tools, "uname"), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
			in(t, current).fails(want)
		}
	})
	t.Run("arguments", func(t *testing.T) {
		i := in(t, current)
		i.fails("has no SHA256SUMS", "--from", t.TempDir())
		i.fails("is not encrypted", "--from", "http://releases.example/1.9.0")
		i.fails("unknown argument --form", "--form", current)
		i.fails("--from needs a value", "--from")
		i.fails("is not absolute", "--config", "etc")
		i.fails("would misread", "--prefix", "/opt/a b")
		if said := i.succeeds("--help"); !strings.Contains(said, "--from PLACE") || len(i.files()) != 0 {
			t.Errorf("--help says\n%s", said)
		}
	})
}

// holds checks what is installed.
func (i installation) holds() {
	i.t.Helper()
	var names []string
	for _, file := range i.files() {
		names = append(names, strings.Join(strings.Fields(file)[:2], " "))
	}
	want := []string{
		installedProgram + " -rwxr-xr-x", "opt/inbox/lib/systemd/system/inbox.service -rw-r--r--", "opt/inbox/share/bash-completion/completions/inbox -rw-r--r--",
		"opt/inbox/share/fish/vendor_completions.d/inbox.fish -rw-r--r--", "opt/inbox/share/zsh/site-functions/_inbox -rw-r--r--",
	}
	if !slices.Equal(names, want) {
		i.t.Errorf("installed are %q, want %q", names, want)
	}

	unit, err := os.ReadFile(filepath.Join(i.root, "opt/inbox/lib/systemd/system/inbox.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/opt/inbox/bin/inbox serve --config /srv/inbox/inbox.toml\n") || strings.Contains(string(unit), "=/etc/inbox") {
		i.t.Errorf("the unit is %v\n%s", err, unit)
	}
}
