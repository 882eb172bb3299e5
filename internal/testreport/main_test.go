package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const events = `{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Test":"TestFast","Output":"quiet words\n"}
{"Action":"pass","Package":"a","Test":"TestFast","Elapsed":0.1}
{"Action":"output","Package":"a","Test":"TestBad","Output":"bad_test.go:7: loud words\n"}
{"Action":"fail","Package":"a","Test":"TestBad","Elapsed":3}
{"Action":"output","Package":"a","Test":"TestRecordedTurns","Output":"    turns_test.go:71: turns: 9 passed, 1 failed\n"}
{"Action":"output","Package":"a","Test":"TestOther","Output":"    turns_test.go:72: all passed, it says\n"}
{"Action":"skip","Package":"a","Test":"TestLater/part","Elapsed":0}
{"Action":"fail","Package":"a","Elapsed":3.2}
{"ImportPath":"b [b.test]","Action":"build-output","Output":"b.go:1:1: undefined: x\n"}
{"ImportPath":"b [b.test]","Action":"build-fail"}
go: a word of the go command
{"Action":"pass","Package":"c","Elapsed":1}
`
	var out strings.Builder
	failed, err := report(strings.NewReader(events), &out)
	if err != nil || !failed {
		t.Errorf("failed %t, %v", failed, err)
	}
	for _, want := range []string{
		"loud words", "undefined: x", "a word of the go command", "FAIL  a", "ok    c", "2 tests; the slowest:\n    3.0 s  a TestBad\n    0.1 s  a TestFast\n", "skipped: a TestLater/part",
		"recorded cases: turns: 9 passed, 1 failed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
	for _, quiet := range []string{"quiet words", "it says"} {
		if strings.Contains(out.String(), quiet) {
			t.Errorf("%q of a test that passed is heard", quiet)
		}
	}

	if failed, err := report(strings.NewReader(`{"Action":"pass","Package":"c","Elapsed":1}`), &out); failed || err != nil {
		t.Errorf("failed %t, %v, although all passed", failed, err)
	}
}
