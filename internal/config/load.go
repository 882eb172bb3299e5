package config

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"inbox/identity"
)

const maxSecretBytes = 64 << 10

// Load reads the settings: defaults, the file, then INBOX_… variables ("NAME=value" as os.Environ gives them), and
// checks all of it. An empty path means no file, which is development mode unless the environment sets
// INBOX_FEDERATION_ALLOW_PRIVATE=false. The error joins one *Problem for everything that is wrong.
func Load(path string, environ []string) (*Config, error) {
	settings, found := Default(), newProblems()
	if path != "" {
		if err := readFile(path, settings, found); err != nil {
			return nil, err
		}
	}
	settings.File = path
	readEnvironment(environ, settings, found)
	settings.develop(found)
	settings.derive(found)
	settings.validate(found)
	if err := found.err(); err != nil {
		return nil, err
	}
	return settings, nil
}

const allowPrivateKey = "federation.allow_private"

// develop turns development mode on where no file was written and nobody decided otherwise.
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
	c.deriveHostLimits()
	for _, listen := range []*string{&c.SMTP.Listen, &c.A2A.GRPCListen, &c.Admin.Listen} {
		if strings.EqualFold(*listen, "off") {
			*listen = ""
		}
	}
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
	if c.SMTP.Hostname == "" {
		c.SMTP.Hostname = identity.HostOf(c.Domain)
	}
	c.deriveEdge(found)
	c.deriveTrust(found)
	c.deriveLimits(found)
	c.deriveAgents(found)
	c.deriveConnectors(found)
}

// localURL is the address of a server that only this machine reaches.
func localURL(http HTTP) string {
	scheme := "http"
	if http.TLS != "off" {
		scheme = "https"
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
		found.add(key, "the secret is there twice", "write "+strings.TrimSuffix(name, "_file")+" or "+name+", not both")
		return
	}
	content, err := readSecretFile(file)
	if err != nil {
		found.add(key, err.Error(), "make the file readable for the server")
		return
	}
	*secret = content
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
