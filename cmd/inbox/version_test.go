package main

import (
	"slices"
	"testing"

	"inbox"
)

// TestBuildIsIdentified: a version alone does not say which build runs.
func TestBuildIsIdentified(t *testing.T) {
	build := inbox.Build{Version: "0.1.0", Revision: "0123456789abcdef0123", Date: "2026-11-30T12:00:00Z", Go: "go1.26", Platform: "linux/arm64"}
	if got, want := buildDetails(build), []string{"commit 0123456789ab", "2026-11-30T12:00:00Z", "go1.26", "linux/arm64"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	build.Modified = true
	if got := buildDetails(build)[0]; got != "commit 0123456789ab with changes" {
		t.Errorf("%q", got)
	}
	if got := buildDetails(inbox.Build{Go: "go1.26", Platform: "linux/arm64"}); !slices.Equal(got, []string{"go1.26", "linux/arm64"}) {
		t.Errorf("a build without a commit: %q", got)
	}
}
