package setup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/internal/config"
	"inbox/operator/setup"
)

// TestFileIsAsItWas: where the check refuses the new settings, or the running server does not read them, the file has its bytes and mode of
// before, and nothing is left beside it.
func TestFileIsAsItWas(t *testing.T) {
	wrong := errors.New("not with me")
	const text = "# ours\r\npublic_url = \"https://agents.example\"\r\n\r\n[[agents]]\r\nname = \"old\"\r\nkind = \"echo\""
	for name, file := range map[string]setup.AgentFile{
		"the check refuses it":        {Check: func(*config.Config) error { return wrong }},
		"the server does not read it": {Apply: func() error { return wrong }},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			file.Path = filepath.Join(directory, "inbox.toml")
			if err := os.WriteFile(file.Path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file.Path, 0o640); err != nil {
				t.Fatal(err)
			}
			_, adding := file.Add(setup.AgentTable{Name: "new", Kind: "webhook", Backend: "http://127.0.0.1:9000/"})
			_, removing := file.Remove("old", "")
			for what, err := range map[string]error{"add": adding, "remove": removing, "set": file.SetTop("data_dir", "elsewhere")} {
				if !errors.Is(err, wrong) {
					t.Errorf("%s: %v", what, err)
				}
			}

			now, err := os.ReadFile(file.Path)
			if err != nil || string(now) != text {
				t.Errorf("the file is %q, %v", now, err)
			}
			if info, err := os.Stat(file.Path); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("its mode is %v, %v", info.Mode(), err)
			}
			if left, err := os.ReadDir(directory); err != nil || len(left) != 1 {
				t.Errorf("beside it: %v, %v", left, err)
			}
		})
	}
}

// TestCheckAddedLeavesNothing: a plan is checked with a secret that is not kept.
func TestCheckAddedLeavesNothing(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("TMPDIR", directory)
	path := filepath.Join(t.TempDir(), "inbox.toml")
	var secrets []string
	file := setup.AgentFile{Path: path, Check: func(settings *config.Config) error {
		secrets = append(secrets, settings.Agents[0].Webhook.Secret.Reveal())
		return nil
	}}
	table := setup.AgentTable{Name: "new", Kind: "webhook", Backend: "http://127.0.0.1:9000/", SecretFile: filepath.Join(directory, "new.secret")}
	if err := file.CheckAdded(path, "public_url = \"https://agents.example\"\n", table); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) > 0 || len(secrets) != 1 || strings.TrimSpace(secrets[0]) == "" {
		t.Errorf("left %v, %v; %d secrets", left, err, len(secrets))
	}
}
