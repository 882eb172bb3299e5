// Command release packs a program into archives that are the same byte for byte wherever they are made: a tar.gz and an image of a
// container (OCI) for each platform, an image for all of them, a list of what is inside each program (SPDX), the script that installs an
// archive, and the sums of all.
// scripts/release calls it; it is no part of the server.
package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	arguments := os.Args[1:]
	run := writeRelease
	if len(arguments) > 0 && arguments[0] == "--image" {
		arguments, run = arguments[1:], writeImage
	}
	if len(arguments) < 4 || len(arguments)%2 != 0 {
		fmt.Fprintln(os.Stderr, "use: release VERSION OUTDIR PLATFORM PROGRAM [PLATFORM PROGRAM]…, or release --image VERSION FILE PLATFORM PROGRAM …, "+
			"in the root of the module; SOURCE_DATE_EPOCH is the time of all files")
		os.Exit(2)
	}

	made, err := timeOfFiles()
	if err == nil {
		err = run(arguments[1], arguments[0], made, builds(arguments[2:]))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func timeOfFiles() (time.Time, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func writeRelease(directory, version string, made time.Time, programs []build) error {
	if strings.ContainsAny(version, "/ \n") {
		return fmt.Errorf("%q is no version", version)
	}

	for _, one := range programs {
		name := "inbox_" + version + "_" + one.platform
		bill, err := billOfMaterials(name, version, one.program, made)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(directory, name+".spdx.json"), bill, 0o644); err != nil { //nolint:gosec // it is published
			return err
		}
		if err := pack(filepath.Join(directory, name+".tar.gz"), name, one.program, made); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		if err := writeImage(filepath.Join(directory, name+".image.tar"), version, made, []build{one}); err != nil {
			return err
		}
	}
	if err := writeImage(filepath.Join(directory, "inbox_"+version+".image.tar"), version, made, programs); err != nil {
		return err
	}
	if err := copyInstaller(directory); err != nil {
		return err
	}
	return sums(directory)
}

const installer = "install.sh"

// copyInstaller adds the script that installs an archive of the release.
func copyInstaller(directory string) error {
	script, err := os.ReadFile(filepath.Join("scripts", installer))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, installer), script, 0o755) //nolint:gosec // it is published, and run
}

// extras go beside the program, with the names that they have inside.
var extras = map[string]string{
	"LICENSE": "LICENSE", "README.md": "README.md", "docs/ops/inbox.service": "systemd/inbox.service",
	"docs/ops/inbox-https.socket": "systemd/inbox-https.socket", "docs/ops/inbox-http.socket": "systemd/inbox-http.socket",
	"docs/ops/inbox-smtp.socket": "systemd/inbox-smtp.socket",
}

func pack(archive, name, program string, made time.Time) (err error) {
	file, err := os.Create(archive) //nolint:gosec // G703: the one who makes a release names the files
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	compressed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	writer := tar.NewWriter(compressed)

	if err := add(writer, program, name+"/inbox", 0o755, made); err != nil {
		return err
	}
	var sources []string
	for source := range extras {
		sources = append(sources, source)
	}
	slices.Sort(sources)
	for _, source := range sources {
		if err := add(writer, source, name+"/"+extras[source], 0o644, made); err != nil {
			return err
		}
	}
	return errors.Join(writer.Close(), compressed.Close())
}

func add(writer *tar.Writer, source, name string, mode int64, made time.Time) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	return addEntry(writer, imageFile{name: name, mode: mode, content: content}, made)
}

// Parts of an SPDX document (version 2.3).
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []component    `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	component struct {
		ID         string      `json:"SPDXID"`
		Name       string      `json:"name"`
		Version    string      `json:"versionInfo"`
		Location   string      `json:"downloadLocation"`
		Analyzed   bool        `json:"filesAnalyzed"`
		Checksums  []checksum  `json:"checksums,omitempty"`
		References []reference `json:"externalRefs,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		Of   string `json:"spdxElementId"`
		Kind string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const unknown = "NOASSERTION"

// billOfMaterials lists the modules that the program says it was made of, and the standard library.
func billOfMaterials(name, version, program string, made time.Time) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read what %s is made of: %w", program, err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}

	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name, Namespace: "urn:sha256:" + digest,
		Creation: creation{Created: made.Format(time.RFC3339), Creators: []string{"Tool: inbox-release"}},
		Packages: []component{{
			ID: "SPDXRef-inbox", Name: "inbox", Version: version, Location: unknown, Checksums: []checksum{{"SHA256", digest}},
		}},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-inbox"}},
	}

	parts := append([]*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...)
	for i, module := range parts {
		if module.Replace != nil {
			module = module.Replace
		}
		id := "SPDXRef-module-" + strconv.Itoa(i)
		d.Packages = append(d.Packages, component{
			ID: id, Name: module.Path, Version: module.Version, Location: unknown,
			References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module.Path + "@" + module.Version}},
		})
		d.Relationships = append(d.Relationships, relationship{"SPDXRef-inbox", "CONTAINS", id})
	}

	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// sums writes SHA256SUMS in the form of sha256sum(1).
func sums(directory string) error {
	entries, err := os.ReadDir(directory) // in order of their names
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, entry := range entries {
		if entry.Name() != installer && !strings.HasPrefix(entry.Name(), "inbox_") {
			continue
		}
		file, err := os.Open(filepath.Join(directory, entry.Name())) //nolint:gosec // G703: the one who makes a release names the files
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sum.Sum(nil), entry.Name())
	}
	return os.WriteFile(filepath.Join(directory, "SHA256SUMS"), []byte(text.String()), 0o644) //nolint:gosec // it is published
}
