package markuptest

import "testing"

func TestSkeletonSeesWhatRuns(t *testing.T) {
	for _, page := range []string{
		`<a href="javascript:alert(1)">`, "<a href=' \x01java\nscript:alert(1)'>", `<a href=JAVASCRIPT&colon;alert(1)>`, `<form action="data:text/html,x">`,
		`<p onclick="x">`, `<p style="x">`, `<!-- x -->`,
	} {
		if _, err := Skeleton(page); err == nil {
			t.Errorf("%q is taken", page)
		}
	}
	for _, page := range []string{`<a href="/@x:y">`, `<a href="https://a.example/">`, `<a href="mailto:a@b.example">`, `<p>javascript:alert(1)</p>`} {
		if _, err := Skeleton(page); err != nil {
			t.Errorf("%q: %v", page, err)
		}
	}
}
