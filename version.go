package inbox

import (
	"runtime"
	"runtime/debug"
)

// Version is the version of this build; the build sets it with -ldflags "-X inbox.Version=…".
var Version = "0.1.0-dev"

// Build describes the running program.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // commit, where the build recorded it
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// BuildInfo describes the running program.
func BuildInfo() Build {
	build := Build{Version: Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				build.Revision = setting.Value
			}
		}
	}
	return build
}
