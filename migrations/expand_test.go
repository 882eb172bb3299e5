package migrations_test

import (
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"inbox/migrations"
)

// contractedBefore is the last migration that may take away what the release before it uses: those up to it are released.
const contractedBefore = 49

// unusedSince is the line that lets a migration take something away. It names the release that stopped using it, which is older than the release
// before this one.
var unusedSince = regexp.MustCompile(`(?m)^-- unused since: \S+`)

// contracting are the statements after which a node of the release before fails, with what to write in their place.
var contracting = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\bRENAME\s+(COLUMN|TO)\b`), "add the new name, write both, and remove the old one a release later"},
	{regexp.MustCompile(`(?i)\bALTER\s+TABLE\s+\S+\s+RENAME\b`), "add the new name, write both, and remove the old one a release later"},
	{regexp.MustCompile(`(?i)\bDROP\s+COLUMN\b`), "remove it a release after the last use"},
	{regexp.MustCompile(`(?i)\bDROP\s+(TABLE|VIEW)\b`), "remove it a release after the last use"},
	{regexp.MustCompile(`(?i)\bALTER\s+COLUMN\b`), "add a column of the other form"},
	{regexp.MustCompile(`(?i)\bADD\s+(CONSTRAINT|CHECK|UNIQUE|FOREIGN|PRIMARY)\b`), "check it in the program: rows of the release before may break it"},
	{regexp.MustCompile(`(?i)\bADD\s+COLUMN\b[^;]*\b(UNIQUE|REFERENCES|CHECK)\b`), "check it in the program: rows of the release before may break it"},
	{regexp.MustCompile(`(?i)\bCREATE\s+TRIGGER\b`), "do it in the program"},
}

var (
	addColumn    = regexp.MustCompile(`(?i)\bADD\s+(COLUMN\s+)?\w+[^;]*\bNOT\s+NULL\b[^;]*`)
	createTable  = regexp.MustCompile(`(?i)\bCREATE\s+(?:VIRTUAL\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)`)
	uniqueIndex  = regexp.MustCompile(`(?i)\bCREATE\s+UNIQUE\s+INDEX\s+(?:IF\s+NOT\s+EXISTS\s+)?\w+\s+ON\s+(\w+)`)
	hasDefault   = regexp.MustCompile(`(?i)\bDEFAULT\b`)
	lineComments = regexp.MustCompile(`--[^\n]*`)
)

// refused returns why nodes of the release before cannot go on after a migration; empty = they can.
func refused(text string) (reasons []string) {
	if unusedSince.MatchString(text) {
		return nil
	}
	statements := lineComments.ReplaceAllString(text, "")
	made := map[string]bool{}
	for _, table := range createTable.FindAllStringSubmatch(statements, -1) {
		made[strings.ToLower(table[1])] = true
	}

	for statement := range strings.SplitSeq(statements, ";") {
		for _, one := range contracting {
			if one.pattern.MatchString(statement) {
				reasons = append(reasons, strings.TrimSpace(statement)+": "+one.instead)
			}
		}
		if column := addColumn.FindString(statement); column != "" && !hasDefault.MatchString(column) {
			reasons = append(reasons, strings.TrimSpace(statement)+": give the column a default, because nodes of the release before do not write it")
		}
		if index := uniqueIndex.FindStringSubmatch(statement); index != nil && !made[strings.ToLower(index[1])] {
			reasons = append(reasons, strings.TrimSpace(statement)+": check it in the program: rows of the release before may break it")
		}
	}
	return reasons
}

// TestMigrationsExpand: nodes of the release before run on the schema of a migration, so it takes nothing away that they use.
func TestMigrationsExpand(t *testing.T) {
	names, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		number, err := strconv.Atoi(name[:5])
		if err != nil {
			t.Fatal(err)
		}
		text, err := migrations.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if number <= contractedBefore {
			continue
		}
		for _, reason := range refused(string(text)) {
			t.Errorf("%s: a node of the release before fails after %s; if no release that may still run uses it, add the line \"-- unused since: RELEASE\"", name, reason)
		}
	}
}

// TestContractionsAreSeen shows statements of both kinds to the check.
func TestContractionsAreSeen(t *testing.T) {
	for text, want := range map[string]bool{
		"ALTER TABLE deliveries RENAME COLUMN via TO channel;":                           true,
		"ALTER TABLE deliveries\n    RENAME via TO channel;":                             true,
		"alter table deliveries rename to sendings;":                                     true,
		"ALTER TABLE mails DROP COLUMN words;":                                           true,
		"DROP TABLE person_identities;":                                                  true,
		"ALTER TABLE turns ADD COLUMN x TEXT NOT NULL;":                                  true,
		"ALTER TABLE turns ADD x TEXT NOT NULL;":                                         true,
		"ALTER TABLE turns ALTER COLUMN x SET NOT NULL;":                                 true,
		"ALTER TABLE turns ADD CONSTRAINT few CHECK (attempt < 9);":                      true,
		"CREATE UNIQUE INDEX turns_request ON turns (request);":                          true,
		"ALTER TABLE turns ADD COLUMN x TEXT NOT NULL DEFAULT '';":                       false,
		"CREATE TABLE x (id TEXT NOT NULL PRIMARY KEY); CREATE UNIQUE INDEX y ON x (z);": false,
		"-- DROP TABLE in words\nCREATE INDEX z ON turns (request);":                     false,
		"DROP INDEX turns_request;":                                                      false,
		"-- unused since: v0.3.0\nALTER TABLE mails DROP COLUMN words;":                  false,
	} {
		if got := len(refused(text)) > 0; got != want {
			t.Errorf("%q is refused: %v, want %v", text, got, want)
		}
	}
}
