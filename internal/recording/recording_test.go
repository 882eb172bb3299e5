package recording

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

func TestSecretsAreTakenOut(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"a password", "my password: hunter2 ok", "my password: [removed] ok"},
		{"a password in German", "Das Passwort lautet geheim", "Das Passwort lautet [removed]"},
		{"a quoted key of JSON", `{"api_key": "a b c", "x": 1}`, `{"api_key": [removed], "x": 1}`},
		{"a header", "Authorization: Basic YWxhZGRpbg==\nnext", "Authorization: [removed]\nnext"},
		{"a bearer token", "use Bearer abcdefghij now", "use Bearer [removed] now"},
		{"a signed token", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.x", "[removed]"},
		{"a random word", "the id is Zk3vN8qL2xW9rT5yB7cD1f end", "the id is [removed] end"},
		{"a private key", "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----.", "[removed]."},
		{"an address that opens something", "see https://u:p@x.example/policy/Zk3vN8qL2xW9rT5yB7cD1f?sig=1&page=2#access_token=3", "see https://x.example/policy/[removed]?sig=[removed]&page=2#[removed]"},
		{"nothing", "The meeting of 2026-05-01 10:30 is in Donaudampfschifffahrtsgesellschaft.", "The meeting of 2026-05-01 10:30 is in Donaudampfschifffahrtsgesellschaft."},
	}
	for _, test := range tests {
		if got := NewScrubber("inbox.test", false).Text(test.text); got != test.want {
			t.Errorf("%s: %q became %q, want %q", test.name, test.text, got, test.want)
		}
	}
}

func TestPeopleHavePseudonyms(t *testing.T) {
	t.Parallel()
	s := NewScrubber("inbox.test", true)
	if address, name := s.sender("@ann.lee@corp.example", "Ann Lee"); address != "person1@simulated.test" || name != "Person1" {
		t.Errorf("the sender is %s, %s", address, name)
	}
	text := "Ann (ANN.LEE@corp.example, @bob@social.example:8080, https://social.example/@bob) asks @echo@inbox.test; Anna too. Call +49 170 1234567."
	want := "Person1 (person1@simulated.test, @person2@simulated.test, https://simulated.test/@person3) asks @echo@agents.test; Anna too. Call [number]."
	if got := s.Text(text); got != want {
		t.Errorf("%q became\n%q, want\n%q", text, got, want)
	}
}

// Texts are scrubbed when they are recorded and once more when they are compared.
func TestScrubbedTextStays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`(([A-Za-z0-9.,:;=-]{0,30}|https?://[a-z.]{1,8}/(@|users/)?[a-z0-9?=&/]{0,30}|(token|pin)[=:] ?[a-z]{3}|@?[a-z]+@[a-z]+(\.[a-z]{2,3}|:[0-9]{2,4})|\+?[0-9 -]{9,14})[ ,\n]){0,6}`).Draw(t, "text")
		once := NewScrubber("inbox.test", true).Text(text)
		twice := NewScrubber("inbox.test", true).Text(once)
		if once != twice {
			t.Fatalf("%q became %q and then %q", text, once, twice)
		}
	})
}

const turnID = "01a21597-5330-7af1-a3bb-674352cb7862"

func turn() exchange.TurnRecord {
	return exchange.TurnRecord{
		ID: turnID, Agent: "echo", Channel: "email", ThreadID: "t@corp.example", State: exchange.StateAnswered, AcceptedAt: time.Unix(1_800_000_000, 0),
		Message: normalized.Message{
			Sender: normalized.Sender{
				Address: identity.Stated("@ann@corp.example"), DisplayName: "Ann", AuthMethod: normalized.AuthEmailDMARC, Verified: true, KeyID: "secret-key-id",
				Identities: []identity.Evidence{{Subject: "mailto:ann@corp.example", Issuer: "corp.example", Method: identity.MethodEmailDMARC, Assurance: identity.AssuranceDomain}},
			},
			Surface: &normalized.Surface{Channel: "email", Subject: "Hello from Ann", Language: "de"},
			Parts: []normalized.Part{
				normalized.Text("Subject: Hello from Ann\n\nIch bin Ann."), {Kind: normalized.PartFile, MIME: "image/png", Name: "ann.png", Size: 7},
			},
			Raw: normalized.Raw{Ref: "sha256:abc"},
		},
		Response: &normalized.Response{Parts: []normalized.Part{normalized.Text("Hello Ann")}},
	}
}

func TestRecordingIsReadAsWritten(t *testing.T) {
	t.Parallel()
	made := Of(turn(), []string{"search", "search", "book"}, NewScrubber("inbox.test", true))
	made.Original = []byte("From: ann@corp.example")
	directory := filepath.Join(t.TempDir(), "cases")
	if err := Prepare(directory); err != nil {
		t.Fatal(err)
	}
	if err := made.Write(directory); err != nil {
		t.Fatal(err)
	}

	read, err := Read(directory)
	if err != nil || len(read) != 1 {
		t.Fatalf("%d recordings, %v", len(read), err)
	}
	made.Original = nil
	if !reflect.DeepEqual(read[0], made) {
		t.Errorf("read\n%+v, want\n%+v", read[0], made)
	}
	if got := read[0].Message.Text(); got != "Ich bin Person1." {
		t.Errorf("the text is %q", got)
	}
	content, err := os.ReadFile(filepath.Join(directory, turnID, messageFile))
	for _, secret := range []string{"corp.example", "secret-key-id", "sha256", "Ann"} {
		if err != nil || strings.Contains(string(content), secret) {
			t.Errorf("the recording has %q: %s, %v", secret, content, err)
		}
	}
	if err := Prepare(directory); err == nil {
		t.Error("a directory with recordings is taken for further ones")
	}
}

// Recordings may come from someone else.
func TestHostileRecordings(t *testing.T) {
	t.Parallel()
	good, err := encode(Of(turn(), nil, NewScrubber("inbox.test", true)).Message)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		spoil func(t *testing.T, place string)
		want  string
	}{
		"unknown member": {func(t *testing.T, place string) {
			write(t, place, messageFile, strings.Replace(string(good), "{", `{"hook":"rm",`, 1))
		}, "unknown field"},
		"other format": {func(t *testing.T, place string) {
			write(t, place, messageFile, strings.Replace(string(good), `"format": 1`, `"format": 2`, 1))
		}, "format is 2"},
		"id that is a path": {func(t *testing.T, place string) {
			write(t, place, messageFile, strings.Replace(string(good), turnID, "../../x", 1))
		}, "id is not"},
		"two values":  {func(t *testing.T, place string) { write(t, place, messageFile, string(good)+"{}") }, "more than one"},
		"deep":        {func(t *testing.T, place string) { write(t, place, messageFile, strings.Repeat("[", 1000)) }, "nests too deeply"},
		"too large":   {func(t *testing.T, place string) { write(t, place, messageFile, strings.Repeat(" ", maxDocument+1)) }, "over the"},
		"no expected": {func(t *testing.T, place string) { remove(t, filepath.Join(place, expectedFile)) }, "is missing"},
		"link outside": {func(t *testing.T, place string) {
			remove(t, filepath.Join(place, messageFile))
			if err := os.Symlink("/etc/hostname", filepath.Join(place, messageFile)); err != nil {
				t.Fatal(err)
			}
		}, "is no file"},
		"nothing": {func(t *testing.T, place string) { remove(t, place) }, "has no recordings"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			if err := Of(turn(), nil, NewScrubber("inbox.test", true)).Write(directory); err != nil {
				t.Fatal(err)
			}
			test.spoil(t, filepath.Join(directory, turnID))
			if _, err := Read(directory); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

func write(t *testing.T, place, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(place, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	before := Expected{State: "answered", Text: "Hi person1@simulated.test", Parts: []Part{{Kind: "text", MIME: "text/plain"}}, Tools: []string{"search"}}
	tests := map[string]struct {
		change            func(*Expected)
		text, shape, only int // differences by each comparison
	}{
		"nothing":        {func(*Expected) {}, 0, 0, 0},
		"another server": {func(e *Expected) { e.Text = "Hi @person1@127.0.0.1:4711" }, 1, 0, 0},
		"port of a peer": {func(e *Expected) { e.Text = "Hi person1@127.0.0.1:4711 " }, 0, 0, 0},
		"words":          {func(e *Expected) { e.Text = "No" }, 1, 0, 0},
		"a file more":    {func(e *Expected) { e.Parts = append(e.Parts, Part{Kind: "file"}) }, 1, 1, 0},
		"another tool":   {func(e *Expected) { e.Tools = []string{"book"} }, 1, 1, 0},
		"state":          {func(e *Expected) { e.State = "held" }, 1, 1, 1},
	}
	demand := func(until string) Expected {
		return Expected{State: "waiting", Text: "May I?\n\nOpen: https://inbox.test/policy/x\n\nValid until " + until + " UTC."}
	}
	if found := Compare(demand("2026-11-30 10:00:00"), demand("2026-12-24 18:30:07"), CompareText, NewScrubber("inbox.test", true)); len(found) > 0 {
		t.Errorf("a demand with a later deadline: %v", found)
	}
	for name, test := range tests {
		now := before
		test.change(&now)
		for how, want := range map[string]int{CompareText: test.text, CompareShape: test.shape, CompareState: test.only} {
			if got := Compare(before, now, how, NewScrubber("inbox.test", true)); len(got) != want {
				t.Errorf("%s by %s: %v, want %d", name, how, got, want)
			}
		}
	}
}

// FuzzParse: what is read keeps its bounds and is written as it was read.
func FuzzParse(f *testing.F) {
	made := Of(turn(), []string{"search"}, NewScrubber("inbox.test", true))
	for _, value := range []any{made.Message, made.Expected} {
		content, err := encode(value)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if message, err := ParseMessage(content); err == nil {
			_ = message.Text()
			written, err := encode(message)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := ParseMessage(written); err != nil || again.ID != message.ID || len(again.Parts) != len(message.Parts) {
				t.Fatalf("%s: %v", written, err)
			}
		}
		_, _ = ParseExpected(content)
		text := string(content)
		if scrubbed := NewScrubber("inbox.test", true).Text(text); len(scrubbed) > 16*len(text)+64 {
			t.Fatalf("%d bytes became %d", len(text), len(scrubbed))
		}
	})
}
