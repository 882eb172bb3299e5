package e2e

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"inbox/internal/await"
)

// composition is the part of docs/ops/compose.yaml that the test looks at.
type composition struct {
	Services map[string]struct {
		Image         string
		Environment   map[string]string
		Secrets       []string
		Volumes       []string
		Ports         []string
		ReadOnly      bool     `yaml:"read_only"`
		CapDrop       []string `yaml:"cap_drop"`
		SecurityOpt   []string `yaml:"security_opt"`
		StopGrace     string   `yaml:"stop_grace_period"`
		Healthcheck   struct{ Test []string }
		DependsOn     map[string]any `yaml:"depends_on"`
		NetworkAccess []string       `yaml:"networks"`
	}
	Secrets  map[string]struct{ File string }
	Volumes  map[string]any
	Networks map[string]any
}

func readComposition(t *testing.T) composition {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "ops", "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	var document any
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := jsonschema.NewCompiler().Compile(filepath.Join("testdata", "compose-spec.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := rules.Validate(value); err != nil {
		t.Fatalf("compose.yaml does not follow the schema of Compose: %v", err)
	}

	var c composition
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

var scriptOfPage = regexp.MustCompile("(?s)by Compose\n.*?```sh\n(.*?)```")

// composed starts the image as docs/ops/compose.yaml says, with the files that docs/ops/container.md makes and the settings of
// docs/ops/compose.toml. PostgreSQL is that of the tests.
func (c *container) composed() {
	t := c.t
	composition := readComposition(t)
	service, database := composition.Services["inbox"], composition.Services["database"]
	for name, one := range composition.Services {
		if _, tag, _ := strings.Cut(one.Image, ":"); tag == "" || strings.HasPrefix(tag, "latest") {
			t.Errorf("%s has the image %q without a version", name, one.Image)
		}
		if !one.ReadOnly || !slices.Contains(one.CapDrop, "ALL") || !slices.Contains(one.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may do more than it has to: %+v", name, one)
		}
	}
	if pause, err := time.ParseDuration(service.StopGrace); err != nil || pause <= 25*time.Second { // drain and shutdown_grace
		t.Errorf("the time to stop is %q", service.StopGrace)
	}

	directory := c.follow(t)
	c.secrets(directory, service.Secrets, composition)
	c.places(service.Volumes, composition)
	settings := c.ports(directory, service.Ports)
	c.connect(service.Environment, database.Environment)
	c.variables = append(c.variables, "INBOX_ACME_DIRECTORY=https://127.0.0.1:1/directory") // no server asks the world in a test
	c.configure(settings)

	server, ended := c.start()
	check := service.Healthcheck.Test
	if len(check) < 2 || check[0] != "CMD" || check[1] != c.config.Process.Args[0] {
		t.Fatalf("the health check %q is no command of the image", check)
	}
	eventually(t, "the health check says that the server is ready", func() bool {
		if len(ended) > 0 {
			t.Fatal("the container ended: ", <-ended)
		}
		return c.command("check", check[2:]...).Run() == nil
	})
	c.locked(server.Process.Pid)
	if records := c.inbox("dns"); !strings.Contains(records, "mail.agents.example") {
		t.Errorf("inbox dns prints %s", records)
	}
	if files, err := filepath.Glob(filepath.Join(c.data, "*.db")); err != nil || len(files) > 0 {
		t.Errorf("the server keeps %v, not PostgreSQL", files)
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, ended, "the end of the container"); err != nil {
		t.Errorf("SIGTERM ended the container with %v", err)
	}
}

// follow does what the page says up to the start, and returns the directory.
func (c *container) follow(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "ops", "container.md"))
	if err != nil {
		t.Fatal(err)
	}
	script := scriptOfPage.FindSubmatch(page)
	if script == nil {
		t.Fatal("docs/ops/container.md has no script for Compose")
	}
	directory := t.TempDir()
	for _, name := range []string{"compose.yaml", "compose.toml"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", "ops", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before, _, _ := strings.Cut(string(script[1]), "docker ")
	command := exec.CommandContext(t.Context(), "sh", "-euc", before)
	command.Dir = directory
	c.run(command, "openssl")
	return directory
}

// secrets shows the files where Compose does.
func (c *container) secrets(directory string, names []string, all composition) {
	c.t.Helper()
	for _, name := range names {
		if all.Secrets[name].File == "" {
			c.t.Fatalf("the secret %s has no file", name)
		}
		c.mount(filepath.Join(directory, all.Secrets[name].File), "/run/secrets/"+name)
	}
}

// places: the volume is at the place of the image, and the settings are where it looks for them.
func (c *container) places(volumes []string, all composition) {
	c.t.Helper()
	places := map[string]string{}
	for _, one := range volumes {
		parts := strings.SplitN(one, ":", 3)
		places[parts[1]] = parts[0]
	}
	arguments := c.config.Process.Args
	if file := places[arguments[len(arguments)-1]]; file != "./inbox.toml" {
		c.t.Errorf("%s is %q", arguments[len(arguments)-1], file)
	}
	if _, named := all.Volumes[places["/data"]]; !named {
		c.t.Errorf("/data is %q", places["/data"])
	}
}

// ports: every port that is mapped is one of the image and of the settings. It returns the settings with free ports instead.
func (c *container) ports(directory string, mapped []string) string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(directory, "inbox.toml"))
	if err != nil {
		c.t.Fatal(err)
	}
	settings := string(text)
	exposed := c.config.Annotations["org.opencontainers.image.exposedPorts"]
	for _, one := range mapped {
		_, inside, _ := strings.Cut(one, ":")
		if !slices.Contains(strings.Split(exposed, ","), inside+"/tcp") {
			c.t.Errorf("the image has the ports %s, not %s", exposed, inside)
		}
		listen := `isten = ":` + inside + `"`
		if !strings.Contains(settings, listen) {
			c.t.Errorf("no listener is at %s", inside)
		}
		settings = strings.Replace(settings, listen, `isten = "`+freeAddress(c.t)+`"`, 1)
	}
	if strings.Contains(settings, `listen = ":`) {
		c.t.Errorf("a listener has no port outside:\n%s", settings)
	}
	return strings.Replace(settings, "127.0.0.1:8081", freeAddress(c.t), 1)
}

// connect takes the variables, with the database of the test in the place of the other service.
func (c *container) connect(variables, database map[string]string) {
	c.t.Helper()
	for name, value := range variables {
		if name == "INBOX_DATABASE_URL" {
			place, err := url.Parse(value)
			if err != nil || place.Hostname() != "database" || place.User.Username() != database["POSTGRES_USER"] || place.Path != "/"+database["POSTGRES_USER"] {
				c.t.Errorf("%s is not the database of the other service: %v", value, err)
			}
			value = emptyPostgres(c.t)
		}
		c.variables = append(c.variables, name+"="+value)
	}
	if variables["INBOX_DATABASE_PASSWORD_FILE"] != database["POSTGRES_PASSWORD_FILE"] {
		c.t.Error("the services have different passwords")
	}
	slices.Sort(c.variables)
}
