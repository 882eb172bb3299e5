package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const moment = 1_700_000_000

func packed(version, directory, program string) error {
	made, err := timeOfFiles()
	if err != nil {
		return err
	}
	return writeRelease(directory, version, made, []build{{platform: "linux_amd64", program: program}})
}

// released packs this test's own program in the root of the module as scripts/release does.
func released(t *testing.T) (directory, program string) {
	t.Helper()
	t.Chdir(filepath.Join("..", ".."))
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	directory = t.TempDir()
	if err := packed("1.2.3", directory, program); err != nil {
		t.Fatal(err)
	}
	return directory, program
}

func TestArchivesAreTheSame(t *testing.T) {
	directory, program := released(t)
	again := t.TempDir()
	if err := packed("1.2.3", again, program); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(directory)
	if err != nil || len(entries) != 6 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, entry := range entries {
		one, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if other, err := os.ReadFile(filepath.Join(again, entry.Name())); err != nil || !bytes.Equal(one, other) {
			t.Errorf("%s differs (%v)", entry.Name(), err)
		}
	}
}

func TestArchiveHoldsProgramAndUnits(t *testing.T) {
	directory, _ := released(t)
	file, err := os.Open(filepath.Join(directory, "inbox_1.2.3_linux_amd64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if !compressed.ModTime.IsZero() || compressed.Name != "" {
		t.Errorf("gzip says when or where: %+v", compressed.Header)
	}

	var names []string
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(header.Name, "inbox_1.2.3_linux_amd64/")
		names = append(names, name)
		mode := int64(0o644)
		if name == "inbox" {
			mode = 0o755
		}
		if header.Mode != mode || !header.ModTime.Equal(time.Unix(moment, 0)) || header.Uid != 0 || header.Gid != 0 || header.Uname != "root" {
			t.Errorf("%s: %+v", name, header)
		}
	}
	want := []string{"inbox", "LICENSE", "README.md", "systemd/inbox-http.socket", "systemd/inbox-https.socket", "systemd/inbox-smtp.socket", "systemd/inbox.service"}
	if !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

func TestSums(t *testing.T) {
	directory, _ := released(t)
	check := func() ([]byte, error) {
		command := exec.CommandContext(t.Context(), "sha256sum", "-c", "SHA256SUMS")
		command.Dir = directory
		return command.CombinedOutput()
	}
	if said, err := check(); err != nil || bytes.Count(said, []byte(": OK")) != 5 {
		t.Errorf("%v\n%s", err, said)
	}
	if err := os.WriteFile(filepath.Join(directory, "inbox_1.2.3_linux_amd64.spdx.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := check(); err == nil {
		t.Errorf("a changed file is taken:\n%s", said)
	}
}

// TestBillIsSPDX looks for what SPDX 2.3 requires of a document (section 6), of packages (7) and of relationships (11).
func TestBillIsSPDX(t *testing.T) {
	directory, _ := released(t)
	content, err := os.ReadFile(filepath.Join(directory, "inbox_1.2.3_linux_amd64.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d document
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if d.Version != "SPDX-2.3" || d.License != "CC0-1.0" || d.ID != "SPDXRef-DOCUMENT" || d.Name == "" || d.Creation.Created != "2023-11-14T22:13:20Z" ||
		len(d.Creation.Creators) == 0 || !regexp.MustCompile(`^urn:sha256:[0-9a-f]{64}$`).MatchString(d.Namespace) {
		t.Errorf("%+v", d.Creation)
	}

	known, isID := map[string]bool{d.ID: true}, regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`)
	for _, p := range d.Packages {
		if known[p.ID] || !isID.MatchString(p.ID) || p.Name == "" || p.Location == "" || p.Analyzed {
			t.Errorf("%+v", p)
		}
		known[p.ID] = true
	}
	if !slices.ContainsFunc(d.Packages, func(p component) bool { return p.Name == "stdlib" && p.Version != "" }) {
		t.Error("the standard library is not on the list")
	}
	described := 0
	for _, r := range d.Relationships {
		if !known[r.Of] || !known[r.To] {
			t.Errorf("%+v is of what is not there", r)
		}
		if r.Kind == "DESCRIBES" {
			described++
		}
	}
	if described != 1 || len(d.Relationships) != len(d.Packages) {
		t.Errorf("%d describe, %d relationships of %d packages", described, len(d.Relationships), len(d.Packages))
	}
}

func TestBadInputIsNamed(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ version, epoch, program, want string }{
		"version":    {"1/2", "1", program, `"1/2" is no version`},
		"time":       {"1", "soon", program, "SOURCE_DATE_EPOCH"},
		"missing":    {"1", "1", text + "-not-there", text + "-not-there"},
		"no program": {"1", "1", text, text},
	} {
		t.Setenv("SOURCE_DATE_EPOCH", c.epoch)
		if err := packed(c.version, t.TempDir(), c.program); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
