package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"inbox/identity"
)

const maxSecretBytes = 64 << 10

// Load reads the settings: defaults, the file, then INBOX_… variables ("NAME=value" as os.Environ returns them), and
// checks all of it. An empty path means no file, which is development mode unless the environment sets
// INBOX_FEDERATION_ALLOW_PRIVATE=false. The error joins one *Problem for everything that is wrong.
func Load(path string, environ []string) (*Config, error) {
	settings, _, err := loadWith(path, environ)
	return settings, err
}

// loadWith is Load that also returns where each key was written.
func loadWith(path string, environ []string) (*Config, *problems, error) {
	if path == "" {
		return finish(Default(), newProblems(), path, environ)
	}

	document, err := readLimited(path)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration file: %w", err)
	}
	return loadText(path, document, environ)
}

// LoadText is Load with a document that is to become the file of that path, which it does not open.
func LoadText(path, document string, environ []string) (*Config, error) {
	settings, _, err := loadText(path, document, environ)
	return settings, err
}

func loadText(path, document string, environ []string) (*Config, *problems, error) {
	settings, found := Default(), newProblems()
	if err := readDocument(path, document, settings, found); err != nil {
		return nil, nil, err
	}
	return finish(settings, found, path, environ)
}

// finish reads the environment, fills in what follows from other settings, and checks all of it.
func finish(settings *Config, found *problems, path string, environ []string) (*Config, *problems, error) {
	settings.File, settings.Environment = path, environ
	readEnvironment(environ, settings, found)
	settings.develop(found)
	settings.deriveNames()
	hosted := settings.splitDomains(found)

	own := found.under(settings)
	settings.derive(own)
	settings.validate(own)
	found.take(own)
	settings.finishDomains(hosted, found)

	if err := found.err(); err != nil {
		return nil, nil, err
	}

	return settings, found, nil
}

const allowPrivateKey = "federation.allow_private"

// develop turns development mode on where no file was written and nothing else was decided.
func (c *Config) develop(found *problems) {
	decided := found.written(allowPrivateKey)
	if c.File != "" || decided && !c.Federation.AllowPrivate {
		return
	}
	c.Development, c.Federation.AllowPrivate = true, true
	if !decided {
		c.checkLocal(found)
	}
}

// derive fills in what follows from other keys.
func (c *Config) derive(found *problems) {
	c.deriveNames()
	c.deriveHostLimits()
	for _, listen := range []*string{&c.SMTP.Listen, &c.A2A.GRPCListen, &c.Admin.Listen} {
		if strings.EqualFold(*listen, "off") {
			*listen = ""
		}
	}

	if c.SMTP.Hostname == "" {
		c.SMTP.Hostname = identity.HostOf(c.Domain)
	}

	c.deriveDatabase(found)
	c.deriveACME(found)
	readSecret(&c.Blob.SecretKey, c.Blob.SecretKeyFile, "blob.secret_key_file", found)
	readSecret(&c.Operator.NotifySecret, c.Operator.NotifySecretFile, "operator.notify_secret_file", found)
	c.deriveAdmin(found)
	c.deriveEdge(found)
	c.deriveTrust(found)
	c.deriveLimits(found)
	c.deriveAgents(found)
	c.deriveConnectors(found)
}

// deriveNames fills in where the server is reached, and its domain.
func (c *Config) deriveNames() {
	if c.PublicURL == "" {
		c.PublicURL = localURL(c.HTTP)
	}

	c.PublicURL = strings.TrimSuffix(c.PublicURL, "/")
	if c.Domain == "" {
		c.Domain = domainOf(c.PublicURL)
	}
	if domain, err := identity.ParseDomain(c.Domain); err == nil {
		c.Domain = domain
	}
}

// deriveDatabase puts the password of the file into the address of the database.
func (c *Config) deriveDatabase(found *problems) {
	c.DatabaseURL = plainHosts(c.DatabaseURL)
	if c.DatabasePasswordFile == "" {
		return
	}

	const key = "database_password_file"
	if c.DatabaseURL == "sqlite" {
		found.add(key, "SQLite has no password", "remove it, or write the address of PostgreSQL into database_url")
		return
	}
	address, err := url.Parse(c.DatabaseURL.Reveal())
	if err != nil || address.User == nil {
		found.add(key, "database_url has no user for the password", `write "postgres://user@host/database"`)
		return
	}
	if _, there := address.User.Password(); there {
		found.add(key, "the password is set twice", "write it into database_url or into the file, not both")
		return
	}

	var password Secret
	readSecret(&password, c.DatabasePasswordFile, key, found)
	if password != "" {
		address.User = url.UserPassword(address.User.Username(), password.Reveal())
		c.DatabaseURL = SecretURL(address.String())
	}
}

// localURL is the address of a server that only this machine reaches.
func localURL(http HTTP) string {
	scheme := "http"
	if http.TLS != "off" {
		scheme = "https"
	}
	if _, socket := socketPath(http.Listen); socket {
		return scheme + "://localhost"
	}
	if _, port, err := net.SplitHostPort(http.Listen); err == nil {
		return scheme + "://localhost:" + port
	}
	return scheme + "://localhost:8080"
}

// domainOf takes the host of a URL, without a port that goes without saying.
func domainOf(publicURL string) string {
	u, err := url.Parse(publicURL)
	if err != nil {
		return ""
	}
	if port := u.Port(); port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return u.Hostname()
	}
	return u.Host
}

// deriveHostLimits spares other people's servers; one's own network bears what it bears.
func (c *Config) deriveHostLimits() {
	concurrency, rate := 4, 5
	if c.Federation.AllowPrivate {
		concurrency, rate = c.Queue.DeliveryConcurrency, 0
	}

	if c.Mail.DomainRate == unset {
		if c.Mail.DomainRate = 30; c.Federation.AllowPrivate {
			c.Mail.DomainRate = 0
		}
	}

	if c.Federation.HostConcurrency == unset {
		c.Federation.HostConcurrency = concurrency
	}
	if c.Federation.HostRate == unset {
		c.Federation.HostRate = rate
	}
}

func (c *Config) deriveAgents(found *problems) {
	if len(c.Agents) == 0 {
		c.Agents = []Agent{defaultAgent(c.Development)}
	}
	for i := range c.Agents {
		agent := &c.Agents[i]
		if agent.DisplayName == "" {
			agent.DisplayName = agent.Name
		}
		agent.Retention.inherit(c.Retention)
		agent.readSecrets(element("agents", i), found)
	}
}

// readSecret reads the file form of a secret; key is that of the file.
func readSecret(secret *Secret, file, key string, found *problems) {
	if file == "" {
		return
	}
	if *secret != "" {
		name := key[strings.LastIndexByte(key, '.')+1:]
		found.add(key, "the secret is set twice", "write "+strings.TrimSuffix(name, "_file")+" or "+name+", not both")
		return
	}

	content, err := readSecretFile(file)
	if err != nil {
		found.add(key, err.Error(), fileAdvice(err))
		return
	}

	if blank(string(content)) {
		found.add(key, file+" is blank", "write a long random text into the file, or remove the line")
		return
	}

	*secret = content
}

// fileAdvice says what to do about a file that could not be read.
func fileAdvice(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "create the file, readable for the server, or correct the path"
	}
	return "make the file readable for the server"
}

func readSecretFile(path string) (Secret, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecretBytes {
		return "", fmt.Errorf("%s is not a file of at most %d bytes", path, maxSecretBytes)
	}
	content, err := os.ReadFile(path)
	return Secret(strings.TrimRight(string(content), "\r\n")), err
}

const prefix = "INBOX_"

// foreign are variables with our prefix that are not settings: the path of the file, what inbox bridge reads, what agents and connectors
// beside the server read (those who try an example have exported them in the same shell), what our own tests use, and what Kubernetes
// sets in every container beside a service that is called "inbox".
var foreign = regexp.MustCompile(`^INBOX_(CONFIG$|SERVER$|TOKEN$|SECRET$|URL$|TEST_|PORT$|PORT_[0-9]|SERVICE_(HOST|PORT))`)

type variable struct{ name, value string }

// readEnvironment puts INBOX_… variables into the settings. An empty variable counts as not set.
func readEnvironment(environ []string, settings *Config, found *problems) {
	for _, v := range ours(environ) {
		target := find(reflect.ValueOf(settings).Elem(), "", strings.TrimPrefix(v.name, prefix))
		switch {
		case target.problem != "":
			found.found = append(found.found, &Problem{Place: v.name, Message: target.problem})
		case !target.field.IsValid():
			found.found = append(found.found, &Problem{Place: v.name, Message: "unknown setting", Remedy: similarVariable(v.name)})
		default:
			found.origins[target.key] = v.name
			if err := setField(target.field, v.value, true); err != nil {
				found.add(target.key, "wrong kind of value", strings.ReplaceAll(err.Error(), `"`, ""))
			}
		}
	}
}

// ours returns our variables in an order in which agents are numbered upwards.
func ours(environ []string) []variable {
	var list []variable
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, prefix) && value != "" && !foreign.MatchString(name) {
			list = append(list, variable{name, value})
		}
	}

	slices.SortStableFunc(list, func(a, b variable) int {
		return cmp.Or(slices.Compare(numbers(a.name), numbers(b.name)), cmp.Compare(a.name, b.name))
	})
	return list
}

var digits = regexp.MustCompile(`_([0-9]{1,4})_`)

// numbers returns the numbers of the tables in a name: that of the agent, then that of its rule.
func numbers(name string) []int {
	var list []int
	for _, match := range digits.FindAllStringSubmatch(name, -1) {
		value, _ := strconv.Atoi(match[1]) // four digits at most
		list = append(list, value)
	}
	return list
}

// target is where a variable goes.
type target struct {
	field   reflect.Value
	key     string
	problem string
}

// find walks the tables along the words of a variable's name. Lists of tables are numbered from 0 and grow by one.
func find(table reflect.Value, path, name string) target {
	for key, field := range fieldsOf(table) {
		upper := strings.ToUpper(key)
		rest, inside := strings.CutPrefix(name, upper+"_")
		switch {
		case inside && isTable(field.Type()):
			if deeper := find(field, join(path, key), rest); deeper.field.IsValid() || deeper.problem != "" {
				return deeper
			}
		case inside && isTableList(field.Type()):
			return findInList(field, join(path, key), rest)
		case name == upper && (isValue(field.Type()) || isShort(field)):
			return target{field: field, key: join(path, key)}
		}
	}
	return target{}
}

var variableName = strings.NewReplacer("[", "_", "]", "", ".", "_")

func findInList(list reflect.Value, path, name string) target {
	text, rest, _ := strings.Cut(name, "_")
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 {
		return target{problem: "write the number of the table after " + variableName.Replace(strings.ToUpper(path)) + "_, from 0"}
	}
	if index > list.Len() {
		return target{problem: "tables are numbered from 0 without gaps: number " + strconv.Itoa(list.Len()) + " is missing"}
	}

	if index == list.Len() {
		fresh := reflect.New(list.Type().Elem()).Elem()
		setDefaults(fresh)
		if !find(fresh, "", rest).field.IsValid() {
			return target{}
		}
		list.Set(reflect.Append(list, fresh))
	}

	return find(list.Index(index), element(path, index), rest)
}

func similarVariable(name string) string {
	var names []string
	for _, entry := range Entries() {
		names = append(names, entry.Variable)
	}
	if best := nearest(name, names); best != "" {
		return "did you mean " + best + "?"
	}
	return "docs/configuration.md lists all"
}
