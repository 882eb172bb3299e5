package authentication

import "testing"

func TestTermsOfSPF(t *testing.T) {
	for terms, want := range map[string]bool{
		"": true, " ": true, "ip4:192.0.2.1 -all": true, "a mx:x.test/24 ~ALL": true, "redirect=x.test moo-1.x_y=": true, "?ptr +exists:%{i}.x.test": true,
		"ip4:192.0.2.1 moo -all": false, "+": false, ":x": false, "/": false, "=": false, "=x": false, "1x=y": false, "--all": false, "+moo=x": false, "-all\t": false, "allx": false,
	} {
		if knownTerms(terms) != want {
			t.Errorf("%q: %t", terms, !want)
		}
	}
}

func FuzzTermsOfSPF(f *testing.F) {
	f.Add("ip4:192.0.2.1 a:x/24 redirect=%{d} -all")
	f.Fuzz(func(_ *testing.T, terms string) { knownTerms(terms) })
}
