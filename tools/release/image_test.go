package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/schema"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// entries reads a tar archive.
func entries(t *testing.T, archive io.Reader) map[string]entry {
	t.Helper()
	found := map[string]entry{}
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := found[header.Name]; twice {
			t.Errorf("%s is a duplicate", header.Name)
		}
		found[header.Name] = entry{header, content}
	}
}

type entry struct {
	*tar.Header
	content []byte
}

// archive is an image that was written.
type archive struct {
	t     *testing.T
	files map[string]entry
}

func newArchive(t *testing.T, platforms ...string) (archive, []byte) {
	t.Helper()
	directory := t.TempDir()
	var programs []build
	for _, platform := range platforms {
		program := filepath.Join(directory, platform)
		if err := os.WriteFile(program, []byte("a program for "+platform), 0o600); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, build{platform, program})
	}
	file := filepath.Join(directory, "image.tar")
	if err := writeImage(file, "1.2.3", time.Unix(1_700_000_000, 0).UTC(), programs); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return archive{t, entries(t, bytes.NewReader(content))}, content
}

// blob returns what a descriptor names, which has its size and digest and, where there is a schema of its type, follows it.
func (a archive) blob(descriptor v1.Descriptor) []byte {
	a.t.Helper()
	content := a.files[blobPath(descriptor.Digest)].content
	if int64(len(content)) != descriptor.Size || digest.FromBytes(content) != descriptor.Digest {
		a.t.Fatalf("the blob %s has %d bytes and the digest %s, its descriptor says %d", descriptor.Digest, len(content), digest.FromBytes(content), descriptor.Size)
	}
	if descriptor.MediaType != v1.MediaTypeImageLayerGzip {
		a.follows(schema.Validator(descriptor.MediaType), content)
	}
	return content
}

func (a archive) follows(rules schema.Validator, content []byte) {
	a.t.Helper()
	if err := rules.Validate(bytes.NewReader(content)); err != nil {
		a.t.Errorf("%s\ndoes not follow the schema of %s: %v", content, rules, err)
	}
}

func decode[T any](t *testing.T, content []byte) (value T) {
	t.Helper()
	if err := json.Unmarshal(content, &value); err != nil {
		t.Fatalf("%s: %v", content, err)
	}
	return value
}

// root is the one descriptor of index.json.
func (a archive) root() v1.Descriptor {
	a.t.Helper()
	a.follows(schema.ValidatorMediaTypeLayoutHeader, a.files["oci-layout"].content)
	a.follows(schema.ValidatorMediaTypeImageIndex, a.files["index.json"].content)
	manifests := decode[v1.Index](a.t, a.files["index.json"].content).Manifests
	if len(manifests) != 1 || manifests[0].Annotations[v1.AnnotationRefName] != "inbox:1.2.3" {
		a.t.Fatalf("index.json names %+v", manifests)
	}
	return manifests[0]
}

// TestImageFollowsItsSpecification reads an image as the documents of the specification say, down to each file.
func TestImageFollowsItsSpecification(t *testing.T) {
	image, _ := newArchive(t, "linux_amd64", "linux_arm64")
	manifests := decode[v1.Index](t, image.blob(image.root())).Manifests
	if len(manifests) != 2 || manifests[0].Platform.Architecture != "amd64" || manifests[1].Platform.Architecture != "arm64" {
		t.Fatalf("platforms: %+v", manifests)
	}
	if _, there := image.files["manifest.json"]; there {
		t.Error("manifest.json names two images by one tag: docker load would take the last one, whatever the machine is")
	}

	for _, described := range manifests {
		manifest := decode[v1.Manifest](t, image.blob(described))
		config := decode[v1.Image](t, image.blob(manifest.Config))
		if config.OS != described.Platform.OS || config.Architecture != described.Platform.Architecture {
			t.Errorf("%+v is called %+v", config.Platform, described.Platform)
		}
		if len(manifest.Layers) != 2 || len(config.RootFS.DiffIDs) != 2 {
			t.Fatalf("%d layers, %d digests of them", len(manifest.Layers), len(config.RootFS.DiffIDs))
		}
		files := map[string]entry{}
		for i, layer := range manifest.Layers {
			reader, err := gzip.NewReader(bytes.NewReader(image.blob(layer)))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(reader)
			if err != nil || digest.FromBytes(plain) != config.RootFS.DiffIDs[i] {
				t.Fatalf("layer %d is not what the configuration says: %v", i, err)
			}
			maps.Copy(files, entries(t, bytes.NewReader(plain)))
		}
		if got := string(files[imageProgram].content); got != "a program for linux_"+config.Architecture || files[imageProgram].Mode != 0o755 {
			t.Errorf("the program of %s is %q", config.Architecture, got)
		}
		for name, file := range files {
			if mine := name == "data/"; mine != (file.Uid == imageUser) || mine != (file.Gid == imageUser) {
				t.Errorf("%s belongs to %d:%d", name, file.Uid, file.Gid)
			}
			parent := filepath.Dir(strings.TrimSuffix(name, "/"))
			if _, there := files[parent+"/"]; parent != "." && !there {
				t.Errorf("%s lies in a directory that is not there", name)
			}
		}
	}
}

// TestImageForDockerLoad: the index of docker load names the same blobs.
func TestImageForDockerLoad(t *testing.T) {
	image, _ := newArchive(t, "linux_amd64")
	manifest := decode[v1.Manifest](t, image.blob(image.root()))
	named := decode[[]dockerImage](t, image.files["manifest.json"].content)
	if len(named) != 1 || strings.Join(named[0].RepoTags, " ") != "inbox:1.2.3" || named[0].Config != blobPath(manifest.Config.Digest) {
		t.Fatalf("manifest.json has %+v", named)
	}
	for i, layer := range manifest.Layers {
		if named[0].Layers[i] != blobPath(layer.Digest) {
			t.Errorf("layer %d is %s, want %s", i, named[0].Layers[i], layer.Digest)
		}
	}
}

// TestImageIsReproducible: files of the same bytes make the same image, wherever they lie.
func TestImageIsReproducible(t *testing.T) {
	_, one := newArchive(t, "linux_amd64", "linux_arm64")
	_, other := newArchive(t, "linux_amd64", "linux_arm64")
	if !bytes.Equal(one, other) {
		t.Error("two images of the same programs differ")
	}
}

func TestImageNeedsATag(t *testing.T) {
	for _, version := range []string{"", "1.0+build", "a/b", "-1", strings.Repeat("1", 129)} {
		if err := writeImage(filepath.Join(t.TempDir(), "image.tar"), version, time.Time{}, nil); err == nil || !strings.Contains(err.Error(), "tag") {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// TestCertificateRootsAreWhole: Go reads every one of them, as many as Mozilla has trusted for years.
func TestCertificateRootsAreWhole(t *testing.T) {
	text := certificateRoots()
	written := bytes.Count(text, []byte("BEGIN CERTIFICATE"))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) || written < 100 {
		t.Fatalf("%d roots", written)
	}
	if !bytes.Contains(text, []byte("-----END CERTIFICATE-----\n-----BEGIN")) {
		t.Error("the file is not one certificate after the other")
	}
}
