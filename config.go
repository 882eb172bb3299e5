package inbox

import "inbox/internal/config"

// Config is every setting of the server; docs/configuration.md describes each key.
type Config = config.Config

// LoadConfig reads the file (none = development mode) and INBOX_… variables of the environment, and validates. Its
// error names key, place and remedy of every problem.
func LoadConfig(file string, environment []string) (*Config, error) {
	return config.Load(file, environment)
}
