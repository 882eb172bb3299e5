package moderation

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/exchange"
	"inbox/internal/fault"
)

func imported(t *testing.T, text string, options ImportOptions) (entries, bad []string) {
	t.Helper()
	if options.List == "" {
		options.List = exchange.ListBlock
	}
	err := ReadImport(strings.NewReader(text), options, func(e exchange.ListEntry) error {
		entries = append(entries, strings.TrimSpace(e.Target+" "+e.Effect+" "+e.Reason))
		return nil
	}, func(line exchange.BadLine) { bad = append(bad, fmt.Sprint(line.Line)) })
	if err != nil {
		t.Fatal(err)
	}
	return entries, bad
}

func TestImport(t *testing.T) {
	for name, test := range map[string]struct {
		text    string
		options ImportOptions
		want    []string
		bad     []string
	}{
		"Mastodon": {
			text: "#domain,#severity,#reject_media,#reject_reports,#public_comment,#obfuscate\r\n" +
				"spam.example,suspend,false,false,\"Spam, and more \"\"spam\"\"\",false\r\nquiet.example,silence,true,false,,false\r\n" +
				"media.example,noop,true,false,,false\nBÜCHER.example,suspend,false,false,,true\n",
			want: []string{`*.spam.example refuse Spam, and more "spam"`, "*.quiet.example hold", "*.xn--bcher-kva.example refuse"},
		},
		"silenced refused": {
			text: "#domain,#severity\nquiet.example,silence\n", options: ImportOptions{Silenced: SilencedRefuse}, want: []string{"*.quiet.example refuse"},
		},
		"silenced skipped":    {text: "#domain,#severity\nquiet.example,silence\n", options: ImportOptions{Silenced: SilencedSkip}},
		"columns in disorder": {text: "severity,domain,comment\nsuspend,a.example,why\n", want: []string{"*.a.example refuse why"}},
		"without a header":    {text: "a.example,suspend\nb.example,silence\n", want: []string{"*.a.example refuse", "*.b.example hold"}},
		"one a line": {
			text: "\ufeff# my list, by hand\n\na.example\n*.b.example\n@eve@c.example\nhttps://d.example/users/x\n",
			want: []string{"a.example refuse", "*.b.example refuse", "@eve@c.example refuse", "https://d.example/users/x refuse"},
		},
		"hosts file": {
			text: "# ads\n0.0.0.0 spam.example\n127.0.0.1\tlocalhost\n0.0.0.0 a.example b.example # two\n:: v6.example\n",
			want: []string{"spam.example refuse", "a.example refuse two", "b.example refuse two", "v6.example refuse"},
		},
		"notes, schemes, ports, slashes": {
			text: "worse.example # note\nhttp://p.example\nq.example:443\nhttps://r.example:443/\ns.example/\nHTTPS://T.example/Users/X/\nTOKEN:1\n",
			want: []string{"worse.example refuse note", "p.example refuse", "q.example refuse", "r.example refuse", "s.example refuse", "https://t.example/Users/X refuse", "token:1 refuse"},
		},
		"what cannot match": {
			text: "spam.example because of spam\n10.0.0.1 spam.example\nother.example spammer\nhttp://\nok.example\n", want: []string{"ok.example refuse"}, bad: []string{"1", "2", "3", "4"},
		},
		"domain alone": {text: "#domain\na.example\n", want: []string{"*.a.example refuse"}},
		"allowances":   {text: "#domain\na.example\n", options: ImportOptions{List: exchange.ListAllow}, want: []string{"*.a.example"}},
		"bad lines": {
			text: "#domain,#severity\nex***le.com,suspend\na.example,destroy\n\"open,suspend\nb.example,suspend\n,suspend\n\xff\xfe,suspend\n127.0.0.1,suspend\n",
			want: []string{"*.b.example refuse", "127.0.0.1 refuse"}, bad: []string{"2", "3", "4", "6", "7"},
		},
		"nothing": {},
	} {
		entries, bad := imported(t, test.text, test.options)
		if diff := cmp.Diff(test.want, entries); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.bad, bad); diff != "" {
			t.Errorf("%s: bad lines (-want +got):\n%s", name, diff)
		}
	}
}

func TestImportIsBounded(t *testing.T) {
	var many strings.Builder
	many.WriteString("#domain,#severity\n")
	for i := range 50_000 {
		fmt.Fprintf(&many, "h%d.example,suspend\n", i)
	}
	begun := time.Now()
	entries, bad := imported(t, many.String(), ImportOptions{})
	if len(entries) != 50_000 || len(bad) != 0 {
		t.Errorf("%d entries, %d bad", len(entries), len(bad))
	}
	t.Logf("50,000 lines in %v", time.Since(begun))
	none := func(exchange.ListEntry) error { return nil }
	ignore := func(exchange.BadLine) {}
	for name, text := range map[string]string{
		"a line":  strings.Repeat("a", maxImportLine+1),
		"a flood": strings.Repeat("\n", MaxImportLines+1),
	} {
		if err := ReadImport(strings.NewReader(text), ImportOptions{List: exchange.ListBlock}, none, ignore); !fault.Is(err, fault.TooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := errors.New("full")
	if err := ReadImport(strings.NewReader("a.example\n"), ImportOptions{List: exchange.ListBlock}, func(exchange.ListEntry) error { return full }, ignore); !errors.Is(err, full) {
		t.Error(err)
	}
}

// FuzzImport: whatever a file holds, entries are canonical and the import ends.
func FuzzImport(f *testing.F) {
	f.Add("#domain,#severity,#reject_media,#reject_reports,#public_comment,#obfuscate\nspam.example,suspend,false,false,\"a, b\",false\n")
	f.Add("\ufeff#domain\nexample.com\n")
	f.Add("a.example,silence\n\"x\n@a@b.example\nhttps://a.example/b\n*.c.example # no\n")
	f.Fuzz(func(t *testing.T, text string) {
		_ = ReadImport(strings.NewReader(text), ImportOptions{List: exchange.ListBlock}, func(e exchange.ListEntry) error {
			kind, target, err := ParseTarget(e.Target)
			if err != nil || kind != e.Kind || target != e.Target {
				t.Errorf("%q of %q is not canonical: %q %q %v", e.Target, text, kind, target, err)
			}
			if e.Effect != exchange.EffectRefuse && e.Effect != exchange.EffectHold {
				t.Errorf("effect %q", e.Effect)
			}
			return nil
		}, func(exchange.BadLine) {})
	})
}

// TestFieldWithAHashIsNoNote: a comment of Mastodon's export may have a hash tag, and stand before the domain.
func TestFieldWithAHashIsNoNote(t *testing.T) {
	const list = "#public_comment,#domain,#severity\nwe saw #spam here,worse.example,suspend\n"
	var taken []exchange.ListEntry
	err := ReadImport(strings.NewReader(list), ImportOptions{List: exchange.ListBlock}, func(e exchange.ListEntry) error {
		taken = append(taken, e)
		return nil
	}, func(bad exchange.BadLine) { t.Errorf("%+v", bad) })
	if err != nil || len(taken) != 1 || taken[0].Target != "*.worse.example" || taken[0].Reason != "we saw #spam here" {
		t.Errorf("%+v, %v", taken, err)
	}
}
