package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// acceptance is what must hold for the server to be a citizen of the fediverse, and the tests that show it: a folder,
// a function, and the name of a subtest where one of many is meant.
var acceptance = []struct {
	item  string
	shown []string
}{
	{"mention and reply with Fedify and GoToSocial, each visibility, both signature schemes, with and without proof", []string{
		"e2e TestFedify in every way", "e2e TestServersWithHabits GoToSocial",
		"adapters/activitypub TestRecordedSoftware", "adapters/activitypub TestProofs", "adapters/activitypub TestOurActivitiesCarryProofs",
	}},
	{"every forged case is answered 4xx, runs no agent, and fetches nothing when policy refuses it", []string{
		"adapters/activitypub TestSecurity", "adapters/activitypub TestRefusedWithoutFetch", "adapters/activitypub TestRefusedAfterFetch",
		"adapters/activitypub TestForwarded", "e2e TestForgedDeliveriesAreRefusedAndLeaveNoRow",
	}},
	{"the same activity three times by personal and shared inbox has one reply", []string{
		"e2e TestFedify sends three times", "adapters/activitypub TestSameActivityThreeTimes",
	}},
	{"what is said to a reply stays in its conversation", []string{
		"e2e TestFedify sends three times", "adapters/activitypub TestThreads", "adapters/activitypub TestForeignConversations",
	}},
	{"a peer that is down gets its reply afterwards, once; a peer that refuses one scheme gets the other", []string{
		"e2e TestFedify is down for a while", "e2e TestServersWithHabits down for a while", "e2e TestFedify refuses one scheme",
		"e2e TestServersWithHabits RFC 9421 alone", "adapters/activitypub TestSecondKnock", "adapters/activitypub TestPeerDown",
	}},
	{"a note that is deleted before the run has none; one that is deleted afterwards is erased; edits likewise", []string{
		"e2e TestFedify edits and deletes", "e2e TestFedify gets changed answers",
	}},
	{"servers in secure mode answer our signed GETs", []string{
		"e2e TestFedify in secure mode", "e2e TestServersWithHabits GoToSocial", "adapters/activitypub TestGoToSocialKeys", "adapters/activitypub TestOurFetchesVerify",
	}},
	{"1000 Deletes of unknown actors cost no fetch and no row", []string{"adapters/activitypub TestUnknownActorDeletes"}},
	{"redirecting, rebinding and huge servers are refused", []string{
		"internal/safehttp TestRebinding", "internal/safehttp TestRedirectToPrivateIsRefused", "internal/safehttp TestRedirectLimits",
		"internal/safehttp TestBodyCap", "adapters/activitypub TestRefusedAfterFetch redirect to another server", "adapters/activitypub TestRefusedAfterFetch huge actor",
	}},
	{"percent-encoded and queried inbox paths verify", []string{
		"adapters/activitypub TestAcceptedForms percent-encoded path", "adapters/activitypub TestAcceptedForms queried inbox",
	}},
}

// TestAcceptanceIsShown keeps the list true: the tests that it names exist.
func TestAcceptanceIsShown(t *testing.T) {
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range acceptance {
		for _, shown := range entry.shown {
			folder, rest, _ := strings.Cut(shown, " ")
			function, subtest, _ := strings.Cut(rest, " ")
			if !hasTest(t, filepath.Join(root, folder), function, subtest) {
				t.Errorf("%s: there is no test %s", entry.item, shown)
			}
		}
	}
}

// hasTest looks for the function, and for the subtest's name as a text in the same file.
func hasTest(t *testing.T, folder, function, subtest string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(function) + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(text) && strings.Contains(string(text), subtest) {
			return true
		}
	}
	return false
}
