package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/children"
)

const imageUser = 65532

// TestImage makes the image of the program, lets umoci unpack it and crun run it as the image says: as its user, with a root that no one
// can write to, without a capability, and with a volume at /data.
func TestImage(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("a container with the user of the image is made by root only; run this as root")
	}
	image := unpackImage(t)
	t.Run("alone", func(t *testing.T) { t.Parallel(); image.in(t).alone() })
	t.Run("compose", func(t *testing.T) { t.Parallel(); image.in(t).composed() })
}

// alone is the server with a file of settings and a volume.
func (c *container) alone() {
	t := c.t
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	c.configure(fmt.Sprintf("[http]\nlisten = %q\n[smtp]\nlisten = \"off\"\n[federation]\nallow_private = true\n[operator]\nnotify_zone = \"Europe/Berlin\"\n", address))

	server, ended := c.start()
	eventually(t, "the server in the container is ready", func() bool {
		if len(ended) > 0 {
			t.Fatal("the container ended: ", <-ended)
		}
		return answersOK("http://" + address + "/readyz")
	})
	c.locked(server.Process.Pid)
	if said := c.inbox("ready"); said != "ready\n" {
		t.Errorf("inbox ready says %q", said)
	}
	if !answersOK("http://" + address + "/.well-known/webfinger?resource=acct:echo@" + strings.Replace(address, "127.0.0.1", "localhost", 1)) {
		t.Error("WebFinger does not find the agent")
	}

	peer := load.A2APeer{URL: "http://" + address + "/a2a/echo", Token: lastLine(c.inbox("tokens", "create", "world")), Client: http.DefaultClient}
	task, err := peer.Send(t.Context(), load.SendBody("first", "hello in there", true))
	if err != nil {
		t.Fatal(err)
	}
	if task = awaitTask(t, peer, task.ID, completed); !strings.Contains(texts(task), "hello in there") {
		t.Errorf("the answer is %q", texts(task))
	}

	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, ended, "the end of the container"); err != nil {
		t.Errorf("SIGTERM ended the container with %v", err)
	}
	if said, err := c.command("not-there", "ready").CombinedOutput(); err == nil || !strings.Contains(string(said), "no server answers") {
		t.Errorf("without a server inbox ready says %q, %v", said, err)
	}
}

// container is an unpacked image.
type container struct {
	t         *testing.T
	directory string // of the bundle that umoci made
	data      string // what is at /data
	mounts    []any  // of files
	variables []string
	config    runtimeConfig
}

// in returns the same image with a new volume, which gets owner and mode of the directory of the image, as by Docker and Podman.
func (c *container) in(t *testing.T) *container {
	t.Helper()
	other := *c
	other.t, other.data = t, filepath.Join(t.TempDir(), "volume")
	volume, err := os.Stat(filepath.Join(c.directory, "rootfs", "data"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(other.data, 0o700); err != nil {
		t.Fatal(err)
	}
	owner := volume.Sys().(*syscall.Stat_t)
	if err := errors.Join(os.Chown(other.data, int(owner.Uid), int(owner.Gid)), os.Chmod(other.data, volume.Mode())); err != nil {
		t.Fatal(err)
	}
	return &other
}

// mount shows a file in the container, which cannot change it.
func (c *container) mount(file, place string) {
	c.mounts = append(c.mounts, map[string]any{"destination": place, "type": "bind", "source": file, "options": []string{"bind", "ro"}})
}

// runtimeConfig is the part of a container's configuration (runtime-spec) that the test looks at. umoci makes it of the image.
type runtimeConfig struct {
	Annotations map[string]string
	Process     struct {
		Args []string
		Env  []string
		User struct{ UID, GID int }
	}
	all map[string]any
}

// devices are the mounts that every container has, without those of the kernel's settings.
func (r *runtimeConfig) devices() (mounts []any) {
	for _, mount := range r.all["mounts"].([]any) {
		if place := mount.(map[string]any)["destination"].(string); strings.HasPrefix(place, "/dev") || place == "/proc" {
			mounts = append(mounts, mount)
		}
	}
	return mounts
}

func unpackImage(t *testing.T) *container {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	c := &container{t: t, directory: filepath.Join(directory, "bundle")}
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(directory, "image.tar")
	release := exec.CommandContext(t.Context(), "go", "run", "./tools/release", "--image", "0.0.0-test", archive, "linux_"+runtime.GOARCH, binary)
	release.Dir, release.Env = root, append(os.Environ(), "CGO_ENABLED=0", "SOURCE_DATE_EPOCH=1700000000")
	c.run(release, "")
	c.run(exec.CommandContext(t.Context(), "tar", "--one-top-level="+filepath.Join(directory, "layout"), "-xf", archive), "")
	c.run(exec.CommandContext(t.Context(), "umoci", "unpack", "--image", filepath.Join(directory, "layout")+":inbox:0.0.0-test", c.directory), "umoci")

	content, err := os.ReadFile(filepath.Join(c.directory, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &c.config); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &c.config.all); err != nil {
		t.Fatal(err)
	}
	if c.config.Process.User.UID != imageUser || c.config.Process.User.GID != imageUser {
		t.Errorf("the user of the image is %+v", c.config.Process.User)
	}

	return c
}

func (c *container) run(command *exec.Cmd, debian string) {
	c.t.Helper()
	if said, err := command.CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v (Debian package %s; scripts/install-test-dependencies)\n%s", command, err, debian, said)
	}
}

// configure writes the file of the settings.
func (c *container) configure(text string) {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "inbox.toml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.mount(file, "/etc/inbox/inbox.toml")
}

// command runs the entry point of the image in a container, with its own arguments or others, in the network of the test.
func (c *container) command(id string, arguments ...string) *exec.Cmd {
	c.t.Helper()
	all := maps.Clone(c.config.all)
	process := maps.Clone(all["process"].(map[string]any))
	all["process"] = process
	process["terminal"] = false
	process["env"] = slices.Concat(c.config.Process.Env, c.variables)
	process["capabilities"] = map[string]any{}
	if len(arguments) > 0 {
		process["args"] = append(c.config.Process.Args[:1:1], arguments...)
	}
	all["root"] = map[string]any{"path": filepath.Join(c.directory, "rootfs"), "readonly": true}
	all["mounts"] = append(c.config.devices(),
		map[string]any{"destination": "/data", "type": "bind", "source": c.data, "options": []string{"bind", "rw", "nosuid", "nodev", "noexec"}},
	)
	all["mounts"] = append(all["mounts"].([]any), c.mounts...)
	all["linux"] = map[string]any{"namespaces": []map[string]string{{"type": "mount"}, {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}}}

	bundle := filepath.Join(c.t.TempDir(), id)
	if err := os.Mkdir(bundle, 0o700); err != nil {
		c.t.Fatal(err)
	}
	content, err := json.Marshal(all)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), content, 0o600); err != nil {
		c.t.Fatal(err)
	}

	// What crun starts would outlive it. As the first process of a namespace it takes everything with it. It makes no control group, but
	// looks for them, and ends where a machine has both kinds.
	command := exec.Command("sh", "-euc", `mount --make-rprivate /; mount -t proc none /proc; mount -t cgroup2 none /sys/fs/cgroup; exec crun --root "$0/state" --cgroup-manager=disabled run --bundle "$0" "$1"`, bundle, id)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	return command
}

// inbox runs a command of the program in a container of its own.
func (c *container) inbox(arguments ...string) string {
	c.t.Helper()
	command := c.command(arguments[0], arguments...)
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	if err := children.Start(command); err != nil {
		c.t.Fatal(err)
	}
	if err := await.Result(c.t, command.Wait, "inbox "+arguments[0]); err != nil {
		c.t.Fatalf("inbox %s in the container: %v (Debian package crun)\n%s%s", arguments, err, output.String(), problems.String())
	}
	return output.String()
}

// start runs the image as it is. The channel has the end of the container.
func (c *container) start() (*exec.Cmd, <-chan error) {
	c.t.Helper()
	command := c.command("server")
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	if err := children.Start(command); err != nil {
		c.t.Fatal(err)
	}
	ended, over := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- command.Wait()
		close(over)
	}()
	c.t.Cleanup(func() {
		_ = command.Process.Kill()
		<-over
		if c.t.Failed() {
			c.t.Logf("the container printed:\n%s", log.String())
		}
	})
	return command, ended
}

// locked looks at the program below a process: whose it is, and what it may do.
func (c *container) locked(parent int) {
	c.t.Helper()
	file := fmt.Sprintf("/proc/%d/task/%[1]d/children", parent)
	text, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	program, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		c.t.Fatalf("%s has %q", file, text)
	}

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", program))
	if err != nil {
		c.t.Fatal(err)
	}
	owner := strings.Repeat("\t"+strconv.Itoa(imageUser), 4)
	for _, line := range []string{"Name:\tinbox", "Uid:" + owner, "Gid:" + owner, "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains("\n"+string(status), "\n"+line+"\n") {
			c.t.Errorf("the program in the container has not %q:\n%s", line, status)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", program))
	if err != nil {
		c.t.Fatal(err)
	}
	if _, options, _ := strings.Cut(string(mounts), " / "); !strings.HasPrefix(options[strings.IndexByte(options, ' ')+1:], "ro") {
		c.t.Errorf("the root can be written to:\n%s", mounts)
	}
}
