package normalized

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestCitationOf: what a reader sees of a citation (agent runtime contract, section 4.5).
func TestCitationOf(t *testing.T) {
	tests := map[string]struct{ given, want string }{
		"all members": {
			`{"source":" s ","source_id":7,"item_id":"i","fragment_id":"f","source_title":"t","source_url":"https://a.test/","score":0.5,"excerpt":"e","access_status":"partial","restriction_reason":"capability","own":1}`,
			`{"source":"s","source_id":"7","item_id":"i","fragment_id":"f","source_title":"t","source_url":"https://a.test/","score":0.5,"excerpt":"e","access_status":"partial","restriction_reason":"capability"}`,
		},
		"denied":           {`{"source_title":"t","source_url":"https://a.test/","excerpt":"e","access_status":"denied"}`, `{"source_title":"t","access_status":"denied"}`},
		"unknown status":   {`{"source":"s","excerpt":"e","access_status":"maybe"}`, `{"source":"s","access_status":"denied"}`},
		"status no text":   {`{"source":"s","excerpt":"e","access_status":{}}`, `{"source":"s","access_status":"denied"}`},
		"script":           {`{"source":"s","source_url":"javascript:alert(1)"}`, `{"source":"s"}`},
		"password in url":  {`{"source":"s","source_url":"https://u:p@a.test/"}`, `{"source":"s"}`},
		"principal":        {`{"source":"s","principal":{"acting_user_id":7,"auth_source":"token","owner_key":"k","token_id":"t","audience_id":["x"]}}`, `{"source":"s","principal":{"acting_user_id":7,"auth_source":"token"}}`},
		"wrong types":      {`{"source":["s"],"source_title":"t","score":"high","principal":"root"}`, `{"source_title":"t"}`},
		"nothing named":    {`{"score":1,"access_status":"denied","excerpt":"e"}`, `{}`},
		"no object at all": {`[1]`, `{}`},
		"two lines":        {`{"source_title":"a\nb\u0007"}`, `{"source_title":"a b"}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got Citation
			if err := json.Unmarshal([]byte(test.given), &got); err != nil {
				t.Fatal(err)
			}
			encoded, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff(test.want, string(encoded)); difference != "" {
				t.Error(difference)
			}
		})
	}
}

// TestDeniedCitationsSayNothing: whatever an agent writes into a part that cites what its reader may not see, the part names
// the source alone.
func TestDeniedCitationsSayNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := Part{
			Kind: rapid.SampledFrom([]string{PartText, PartLink}).Draw(t, "kind"), MIME: MIMEMarkdown, Content: "s3cret", New: "s3cret",
			URL: "https://a.test/s3cret", Title: "s3cret", Description: "s3cret",
			Citation: &Citation{Source: "wages", SourceURL: "https://a.test/s3cret", Excerpt: "s3cret", AccessStatus: rapid.SampledFrom([]string{AccessDenied, "other"}).Draw(t, "status")},
		}
		response := Response{Parts: []Part{part}}
		response.Clean()
		encoded, err := json.Marshal(response)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(encoded) + PlainText(response.Parts) + MarkdownText(response.Parts); strings.Contains(text, "s3cret") || !strings.Contains(text, "wages") {
			t.Fatal(text)
		}
	})
}

func TestSourcesOfTexts(t *testing.T) {
	parts := []Part{
		Text("Hello."), Citation{SourceTitle: "A *guide*", SourceURL: "https://a.test/x"}.Part(), {Kind: PartToolCall, ID: "1", Name: "search"},
		Citation{SourceTitle: "Wages", AccessStatus: AccessDenied, RestrictionReason: "audience"}.Part(), Citation{SourceURL: "https://b.test/"}.Part(),
	}
	const plain = "Hello.\n\nSources:\n[1] A *guide*: https://a.test/x\n[2] Wages (no access: audience)\n[3] https://b.test/"
	if got := PlainText(parts); got != plain {
		t.Errorf("plain text %q", got)
	}
	const marked = "Hello.\n\nSources:  \n\\[1\\] [A \\*guide\\*](<https://a.test/x>)  \n\\[2\\] Wages (no access: audience)  \n\\[3\\] [https://b.test/](<https://b.test/>)"
	if got := MarkdownText(parts); got != marked {
		t.Errorf("markdown %q", got)
	}
}

func TestToolLine(t *testing.T) {
	call := func(name, args string) Part {
		return Part{Kind: PartToolCall, ID: name, Name: name, Args: json.RawMessage(args), Result: json.RawMessage(`1`)}
	}
	failed := call("fetch", `{}`)
	failed.Result, failed.Error = nil, &ToolError{Message: "no"}
	if got := ToolLine([]Part{Text("x"), call("search", ""), failed}); got != "Tools: search, fetch (failed)" {
		t.Error(got)
	}
	if got := ToolLine([]Part{Text("x")}); got != "" {
		t.Error(got)
	}
	if got := ToolLine([]Part{call("search", `{"q": "`+strings.Repeat("ä", 200)+`"}`)}); len(got) > 120 || !strings.HasSuffix(got, "…") {
		t.Error(got)
	}
	var many []Part
	for range 50 {
		many = append(many, call("a-tool-with-a-name", ""))
	}
	if got := ToolLine(many); len(got) > maxToolLine+8 || !strings.HasSuffix(got, ", …") {
		t.Errorf("%d %s", len(got), got)
	}
}

// TestCitationDoesNotReplaceItsPart: a link keeps its title, address and description in the line of its source, and a text its words.
func TestCitationDoesNotReplaceItsPart(t *testing.T) {
	var response Response
	document := `{"parts":[
	 {"kind":"text","mime":"text/plain","content":"Paris is the capital.","citation":{"source":"atlas"}},
	 {"kind":"link","url":"https://src.example/a","title":"Source A","description":"The *first*\nsource","citation":{"source":"kb","source_id":"1"}},
	 {"kind":"link","url":"https://src.example/b","citation":{"source_title":"Wages","source_url":"https://src.example/w","access_status":"denied"}}]}`
	if err := json.Unmarshal([]byte(document), &response); err != nil {
		t.Fatal(err)
	}
	response.Clean()

	const plain = "Paris is the capital.\n\nSources:\n[1] atlas\n[2] Source A: https://src.example/a – The *first* source\n[3] Wages (no access)"
	if got := PlainText(response.Parts); got != plain {
		t.Errorf("plain text %q", got)
	}
	const marked = "Paris is the capital.\n\nSources:  \n\\[1\\] atlas  \n\\[2\\] [Source A](<https://src.example/a>) – The \\*first\\* source  \n\\[3\\] Wages (no access)"
	if got := MarkdownText(response.Parts); got != marked {
		t.Errorf("markdown %q", got)
	}
	said, citations := Cited(response.Parts)
	if len(said) != 1 || said[0].Content != "Paris is the capital." || len(citations) != 3 || citations[1].SourceURL != "https://src.example/a" || citations[1].Source != "kb" {
		t.Errorf("said %+v, citations %+v", said, citations)
	}
}

// TestAboutFilesIsShown: the description of a file does not give way to its name, its alternative text or its address.
func TestAboutFilesIsShown(t *testing.T) {
	file := Part{Kind: PartFile, MIME: "application/pdf", Name: "a.pdf", Alt: "a plan", Description: "of the house", BytesRef: &BytesRef{Kind: BytesURL, URL: "https://a.test/a.pdf"}}
	picture := file
	picture.MIME, picture.Name = "image/png", "a.png"
	for _, part := range []Part{file, picture} {
		for _, text := range []string{PlainText([]Part{part}), MarkdownText([]Part{part})} {
			for _, want := range []string{"a plan", "of the house", "https://a.test/a.pdf"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q lacks %q", text, want)
				}
			}
		}
	}
}
