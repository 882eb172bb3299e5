package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	imageProgram = "usr/local/bin/inbox"
	imageRoots   = "etc/ssl/certs/ca-certificates.crt" // where Go looks first on Linux
	imageUser    = 65532                               // as in the images of others that have no user root to offer
)

// imageTag is what registries take as a tag (distribution-spec).
var imageTag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// build is a program made for one platform, such as linux_amd64.
type build struct{ platform, program string }

// builds reads pairs of a platform and the path of a program.
func builds(pairs []string) (list []build) {
	for pair := range slices.Chunk(pairs, 2) {
		list = append(list, build{pair[0], pair[1]})
	}
	return list
}

// writeImage writes an image of the programs as a tar archive with an OCI image layout (image-spec 1.1), for "podman load", "skopeo copy
// oci-archive:" and "ctr image import". An archive for one platform has the index of "docker load" as well.
func writeImage(archive, version string, made time.Time, programs []build) error {
	if !imageTag.MatchString(version) {
		return fmt.Errorf("%q cannot be the tag of an image: registries take letters, digits, '_', '.' and '-'", version)
	}

	image := layout{blobs: map[digest.Digest][]byte{}}
	base, err := baseLayer()
	if err != nil {
		return err
	}

	var manifests []v1.Descriptor
	for _, one := range programs {
		manifest, err := image.addPlatform(version, made, base, one)
		if err != nil {
			return fmt.Errorf("image for %s: %w", one.platform, err)
		}
		manifests = append(manifests, manifest)
	}

	root := manifests[0]
	if len(manifests) > 1 {
		if root, err = image.addDocument(v1.MediaTypeImageIndex, index(manifests...)); err != nil {
			return err
		}
	}

	name := "inbox:" + version
	root.Annotations = map[string]string{v1.AnnotationRefName: name}
	return image.write(archive, name, root, made)
}

func index(manifests ...v1.Descriptor) v1.Index {
	return v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: manifests}
}

// layout gathers the blobs of an image.
type layout struct {
	blobs  map[digest.Digest][]byte
	docker []dockerImage // each of one platform
}

// dockerImage is an entry of manifest.json, by which "docker load" finds what an archive has where images are not kept by containerd.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (l *layout) add(mediaType string, content []byte) v1.Descriptor {
	sum := digest.FromBytes(content)
	l.blobs[sum] = content
	return v1.Descriptor{MediaType: mediaType, Digest: sum, Size: int64(len(content))}
}

func (l *layout) addDocument(mediaType string, document any) (v1.Descriptor, error) {
	content, err := json.Marshal(document)
	return l.add(mediaType, content), err
}

// addPlatform adds the image of one platform and returns the descriptor of its manifest.
func (l *layout) addPlatform(version string, made time.Time, base tarLayer, one build) (v1.Descriptor, error) {
	system, machine, _ := strings.Cut(one.platform, "_")
	platform := v1.Platform{OS: system, Architecture: machine}
	if machine == "arm64" {
		platform.Variant = "v8"
	}

	content, err := os.ReadFile(one.program)
	if err != nil {
		return v1.Descriptor{}, err
	}
	program, err := packLayer(made, imageFile{name: imageProgram, mode: 0o755, content: content})
	if err != nil {
		return v1.Descriptor{}, err
	}

	config, err := l.addDocument(v1.MediaTypeImageConfig, v1.Image{
		Created: &made, Platform: platform, Config: imageConfig(version),
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{base.plain, program.plain}},
		History: []v1.History{
			{Created: &made, CreatedBy: "directories, users, roots of certificates and time zones"},
			{Created: &made, CreatedBy: "inbox " + version},
		},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}

	layers := []v1.Descriptor{l.add(v1.MediaTypeImageLayerGzip, base.packed), l.add(v1.MediaTypeImageLayerGzip, program.packed)}
	manifest, err := l.addDocument(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Config: config, Layers: layers,
		Annotations: imageLabels(version, made),
	})
	manifest.Platform = &platform
	l.docker = append(l.docker, dockerImage{Config: blobPath(config.Digest), Layers: []string{blobPath(layers[0].Digest), blobPath(layers[1].Digest)}})
	return manifest, err
}

// imageConfig says how the image is run. The ports are those that docs/ops writes; an own user may open them without a capability.
func imageConfig(version string) v1.ImageConfig {
	return v1.ImageConfig{
		User:       fmt.Sprintf("%d:%[1]d", imageUser), // as a number, so that Kubernetes can see that it is not root
		Env:        []string{"PATH=/usr/local/bin", "INBOX_DATA_DIR=/data"},
		Entrypoint: []string{"/" + imageProgram},
		Cmd:        []string{"serve", "--config", "/etc/inbox/inbox.toml"},
		// Here every other command finds the file by itself.
		WorkingDir:   "/etc/inbox",
		Volumes:      map[string]struct{}{"/data": {}},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8443/tcp": {}, "2525/tcp": {}},
		StopSignal:   "SIGTERM",
		Labels:       imageLabels(version, time.Time{}),
	}
}

func imageLabels(version string, made time.Time) map[string]string {
	labels := map[string]string{
		v1.AnnotationTitle: "inbox", v1.AnnotationDescription: "One address for an agent: fediverse, A2A and email",
		v1.AnnotationVersion: version, v1.AnnotationLicenses: "Apache-2.0",
	}
	if !made.IsZero() {
		labels[v1.AnnotationCreated] = made.Format(time.RFC3339)
	}
	return labels
}

// imageFile is an entry of a layer. A name that ends with a slash is a directory.
type imageFile struct {
	name    string
	mode    int64
	owner   int
	content []byte
}

// baseLayer is what the program needs beside itself. Its bytes change only with the roots, so that an update of the program does
// not load it again: its times are not those of the build.
func baseLayer() (tarLayer, error) {
	users := fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\ninbox:x:%d:%[1]d:inbox:/data:/sbin/nologin\n", imageUser)
	groups := fmt.Sprintf("root:x:0:\ninbox:x:%d:\n", imageUser)
	return packLayer(time.Unix(0, 0).UTC(),
		imageFile{name: "data/", mode: 0o700, owner: imageUser}, // a volume that is new gets owner and mode of it
		imageFile{name: "etc/", mode: 0o755},
		imageFile{name: "etc/group", mode: 0o644, content: []byte(groups)},
		imageFile{name: "etc/inbox/", mode: 0o755},
		imageFile{name: "etc/passwd", mode: 0o644, content: []byte(users)},
		imageFile{name: "etc/ssl/", mode: 0o755},
		imageFile{name: "etc/ssl/certs/", mode: 0o755},
		imageFile{name: imageRoots, mode: 0o644, content: certificateRoots()},
		imageFile{name: "tmp/", mode: 0o1777},
		imageFile{name: "usr/", mode: 0o755},
		imageFile{name: "usr/local/", mode: 0o755},
		imageFile{name: "usr/local/bin/", mode: 0o755},
	)
}

// certificateRoots are the authorities that Mozilla trusts for servers, from a module of a fixed version: those of the machine that builds
// would be others on the next one. An authority that is trusted only for certificates from before a date is left out, because a file
// cannot say the date.
func certificateRoots() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return text.Bytes()
}

// tarLayer is a layer, packed by gzip, and the digest of what was packed.
type tarLayer struct {
	packed []byte
	plain  digest.Digest
}

func packLayer(made time.Time, files ...imageFile) (tarLayer, error) {
	var plain, packed bytes.Buffer
	writer := tar.NewWriter(&plain)
	for _, file := range files {
		if err := addEntry(writer, file, made); err != nil {
			return tarLayer{}, err
		}
	}
	if err := writer.Close(); err != nil {
		return tarLayer{}, err
	}

	compressed := gzip.NewWriter(&packed)
	_, err := compressed.Write(plain.Bytes())
	err = errors.Join(err, compressed.Close())
	return tarLayer{packed: packed.Bytes(), plain: digest.FromBytes(plain.Bytes())}, err
}

// addEntry writes a file or a directory with nothing of the machine on which it is made.
func addEntry(writer *tar.Writer, file imageFile, made time.Time) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: file.name, Mode: file.mode, Size: int64(len(file.content)), ModTime: made, Format: tar.FormatUSTAR,
		Uid: file.owner, Gid: file.owner,
	}
	if strings.HasSuffix(file.name, "/") {
		header.Typeflag = tar.TypeDir
	}
	if file.owner == 0 {
		header.Uname, header.Gname = "root", "root"
	}
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	_, err := writer.Write(file.content)
	return err
}

func blobPath(sum digest.Digest) string {
	return "blobs/" + sum.Algorithm().String() + "/" + sum.Encoded()
}

// write writes the archive: the documents that name the image, then the blobs in order of their digests.
func (l *layout) write(archive, name string, root v1.Descriptor, made time.Time) error {
	documents := map[string]any{
		v1.ImageLayoutFile: v1.ImageLayout{Version: v1.ImageLayoutVersion},
		v1.ImageIndexFile:  index(root),
	}
	if len(l.docker) == 1 {
		l.docker[0].RepoTags = []string{name}
		documents["manifest.json"] = l.docker
	}

	files := []imageFile{{name: "blobs/", mode: 0o755}, {name: "blobs/sha256/", mode: 0o755}}
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		content, err := json.Marshal(documents[name])
		if err != nil {
			return err
		}
		files = append(files, imageFile{name: name, mode: 0o644, content: content})
	}
	for _, sum := range slices.Sorted(maps.Keys(l.blobs)) {
		files = append(files, imageFile{name: blobPath(sum), mode: 0o644, content: l.blobs[sum]})
	}

	var content bytes.Buffer
	writer := tar.NewWriter(&content)
	for _, file := range files {
		if err := addEntry(writer, file, made); err != nil {
			return err
		}
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return os.WriteFile(archive, content.Bytes(), 0o644) //nolint:gosec // it is published
}
