package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/agents"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// describe writes parts in one line each.
func describe(parts []normalized.Part) (lines []string) {
	for _, p := range parts {
		line := p.Kind + " " + p.MIME + " " + p.ID + p.Name + p.Title + " " + p.Content + p.URL
		if p.BytesRef != nil {
			content, _ := p.BytesRef.Bytes()
			line += fmt.Sprintf("%s %s%s %d", p.BytesRef.Kind, content, p.BytesRef.URL, p.Size)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestResultsBecomeParts(t *testing.T) {
	big := bytes.Repeat([]byte("b"), normalized.MaxInlineBytes+1)
	results := a2a.ContentParts{
		a2a.NewTextPart("Here it is."),
		{Content: a2a.Text("a,b\n"), MediaType: "text/csv", Filename: "../table.csv"},
		{Content: a2a.Raw("png"), MediaType: "image/png", Filename: "map.png"},
		{Content: a2a.URL("https://files.example/x.pdf"), MediaType: "application/pdf", Filename: "x.pdf"},
		{Content: a2a.URL("https://pages.example/"), MediaType: "text/html", Filename: "A page"},
		{Content: a2a.URL("http://plain.example/y.pdf"), MediaType: "application/pdf", Filename: "y.pdf"},
		{Content: a2a.URL("javascript:alert(1)"), MediaType: "text/html"},
		a2a.NewDataPart(map[string]any{"k": "v"}),
		{Content: a2a.Raw(big), MediaType: "video/mp4", Filename: "film.mp4"},
	}
	for _, way := range []string{wayRPC, wayREST} { // 0.3 knows neither names nor types of texts
		t.Run(way, func(t *testing.T) {
			server := startUpstream(t, way, true, func(_ context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
				event := a2a.NewArtifactEvent(call, results...)
				event.Artifact.ID, event.Artifact.Name = "art", "report"
				_ = yield(a2a.NewSubmittedTask(call, call.Message), nil) && yield(event, nil) &&
					yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCompleted, say("Done.")), nil)
			})
			blobs := &shelf{}
			got := mustHandle(t, newAgent(t, server.URL, func(o *Options) { o.Blobs = blobs }), turnOf("1", "x")).response
			want := []string{
				"text text/markdown  Here it is.",
				"artifact text/csv art.1table.csv inline a,b\n 4",
				"artifact image/png art.2map.png inline png 3",
				"artifact application/pdf art.3x.pdf url https://files.example/x.pdf 0",
				"link  A page https://pages.example/",
				"link  y.pdf http://plain.example/y.pdf",
				`artifact application/json art.6report inline {"k":"v"} 9`,
				"artifact video/mp4 art.7film.mp4 content_addressed  262145",
			}
			lines := describe(got.Parts)
			if diff := cmp.Diff(want, lines); diff != "" {
				t.Error(diff)
			}
			if len(blobs.files[normalized.Digest(big)]) != len(big) {
				t.Error("the large file was not kept")
			}
		})
	}
}

// TestDataGoesThereAndBack: data is data on the way to another agent, with all digits where the binding has them, and in its
// answer; so is a policy part of the one who asks.
func TestDataGoesThereAndBack(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			server := startUpstream(t, way, true, func(_ context.Context, call *a2asrv.ExecutorContext, yield func(a2a.Event, error) bool) {
				event := a2a.NewArtifactEvent(call, a2a.NewDataPart(map[string]any{"k": "v"}))
				_ = yield(a2a.NewSubmittedTask(call, call.Message), nil) && yield(event, nil) &&
					yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCompleted, nil), nil)
			})
			turn, data := turnOf("1", "look"), normalized.Data()
			data.BytesRef = normalized.Inline([]byte(`{"n":7,"deep":{"list":[1.5,"x",null]}}`))
			policy := normalized.Part{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.Forbidden, Message: "no"}}
			turn.Message.Parts = append(turn.Message.Parts, data, policy)
			answer := mustHandle(t, newAgent(t, server.URL, nil), turn).response
			sent := server.received()[0].Parts
			if len(sent) != 3 || value.EncodeText(sent[1].Data()) != `{"deep":{"list":[1.5,"x",null]},"n":7}` || value.EncodeText(sent[2].Data()) != `{"kind":"forbidden","message":"no"}` {
				t.Errorf("the other agent got %+v", sent)
			}
			if len(answer.Parts) != 1 || !answer.Parts[0].IsData() || answer.Parts[0].ArtifactType != normalized.ArtifactData {
				t.Errorf("the answer is %+v", answer.Parts)
			}
		})
	}
}

func TestFilesGoThere(t *testing.T) {
	blobs := &shelf{}
	small, _, _ := blobs.Put(t.Context(), strings.NewReader("stored"))
	large, _, _ := blobs.Put(t.Context(), strings.NewReader(strings.Repeat("l", 100)))
	file := func(name string, ref *normalized.BytesRef, size int64) normalized.Part {
		return normalized.Part{Kind: normalized.PartFile, MIME: "application/pdf", Name: name, BytesRef: ref, Size: size}
	}
	turn := turnOf("1", "look")
	turn.Message.Parts = append(turn.Message.Parts,
		normalized.Part{Kind: normalized.PartText, MIME: normalized.MIMEHTML, Content: "<p>at <b>this</b></p>"},
		file("inline.pdf", normalized.Inline([]byte("inline")), 6), file("stored.pdf", normalized.Stored(small), 6),
		file("large.pdf", normalized.Stored(large), 100), file("liar.pdf", normalized.Stored(large), 1),
		file("far.pdf", normalized.At("https://files.example/far.pdf"), 0),
		normalized.Part{Kind: normalized.PartLink, URL: "https://example.org/", Title: "Example"},
		normalized.Part{Kind: normalized.PartToolCall, ID: "1", Name: "secret"},
	)
	tests := map[string]struct {
		files agents.Files
		want  []string
	}{
		"with addresses": {
			addresses{},
			[]string{
				"look", "at this", "inline.pdf inline", "stored.pdf stored", "large.pdf https://inbox.example/" + large[:4],
				"liar.pdf https://inbox.example/" + large[:4], "far.pdf https://files.example/far.pdf", "Example https://example.org/",
			},
		},
		"without": {
			nil,
			[]string{
				"look", "at this", "inline.pdf inline", "stored.pdf stored", "[large.pdf (application/pdf) is too large to be sent here]",
				"[liar.pdf (application/pdf) is too large to be sent here]", "far.pdf https://files.example/far.pdf", "Example https://example.org/",
			},
		},
	}
	for name, test := range tests {
		for _, way := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				server := startUpstream(t, way, true, growing)
				agent := newAgent(t, server.URL, func(o *Options) { o.Blobs, o.MaxFileBytes = blobs, 50 })
				turn := turn
				turn.Files = test.files
				mustHandle(t, agent, turn)
				var got []string
				for _, part := range server.received()[0].Parts {
					got = append(got, strings.TrimSpace(part.Filename+" "+part.Text()+string(part.Raw())+string(part.URL())))
				}
				if way == wayOldREST { // the SDK reads no names of addresses there
					for i, line := range test.want {
						if at := strings.Index(line, "https://"); at > 0 && i < len(got) && got[i] == line[at:] {
							got[i] = line
						}
					}
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func TestFileThatIsGoneIsTriedAgain(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	turn := turnOf("1", "x")
	turn.Message.Parts = []normalized.Part{{Kind: normalized.PartFile, MIME: "a/b", BytesRef: normalized.Stored(normalized.Digest(nil))}}
	_, err := handle(t.Context(), t, newAgent(t, server.URL, func(o *Options) { o.Blobs = &shelf{} }), turn)
	if got := fault.Of(err); got.Permanent || len(server.received()) != 0 {
		t.Errorf("got %v", err)
	}
}

func TestWordsWithoutResults(t *testing.T) {
	tests := map[string]struct{ task, want string }{
		"at the end": {taskWith(`"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"bye"}]}`, ""), "bye"},
		"in the talk": {
			taskWith(`"timestamp":"2026-01-01T00:00:00Z"`, `,"history":[{"messageId":"u","role":"ROLE_USER","parts":[{"text":"hi"}]},{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"ho"}]}]`), "ho",
		},
		"of an earlier turn": {
			taskWith(`"timestamp":"2026-01-01T00:00:00Z"`, `,"history":[{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"ho"}]},{"messageId":"u","role":"ROLE_USER","parts":[{"text":"hi"}]}]`), "",
		},
		"with a picture": {
			taskWith(`"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"your map"}]}`, `,"artifacts":[{"artifactId":"a","parts":[{"raw":"eA==","mediaType":"image/png","filename":"map.png"}]}]`),
			"your map\n\nAttachment: map.png",
		},
		"with results": {taskWith(`"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"Done."}]}`, answerArtifact), "the whole answer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := startScripted(t, false, func(c *call) { c.result(wrapped(test.task)) })
			got := mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x")).response
			if text := textOf(got); !strings.HasPrefix(text, test.want) || got.Silent != (test.want == "") {
				t.Errorf("got %q (silent: %t), want %q", text, got.Silent, test.want)
			}
		})
	}
}

func taskWith(status, rest string) string {
	return `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED",` + status + `}` + rest + `}`
}

func TestChunksAreOneText(t *testing.T) {
	texts := func(list ...string) (parts a2a.ContentParts) {
		for _, text := range list {
			parts = append(parts, a2a.NewTextPart(text))
		}
		return parts
	}
	tests := map[string]struct {
		in   []string
		want int
	}{
		"paragraphs":           {[]string{"One.", "Two."}, 2},
		"white space before":   {[]string{"One", " word"}, 1},
		"white space behind":   {[]string{"One\n", "word"}, 1},
		"many without a space": {strings.Split("abcdefgh", ""), 8},
		"tokens of a stream":   {[]string{"Hel", "lo", " wor", "ld,", " this", " is", " one", " text"}, 1},
		"one seam of three":    {[]string{"One.\n", "Two", "Three"}, 2},
		"one":                  {[]string{" one "}, 1},
		"none":                 {nil, 0},
	}
	for name, test := range tests {
		if got := unchunked(texts(test.in...), normalized.MIMEPlain); len(got) != test.want {
			t.Errorf("%s: %d texts, want %d", name, len(got), test.want)
		}
	}
}

// TestStreamedAndStoredAreTheSame: however an answer is cut into chunks with white space at the seams, the stream and the
// snapshot give the same text.
func TestStreamedAndStoredAreTheSame(t *testing.T) {
	agent := newAgent(t, "https://a.example/", nil)
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,8} `), 1, 20).Draw(t, "words")
		var streamed, stored task
		snapshot := &a2a.Task{ID: "t", Status: a2a.TaskStatus{State: a2a.TaskStateCompleted}, Artifacts: []*a2a.Artifact{{ID: "a"}}}
		for i, word := range words {
			part := a2a.NewTextPart(word)
			snapshot.Artifacts[0].Parts = append(snapshot.Artifacts[0].Parts, part)
			event := &a2a.TaskArtifactUpdateEvent{TaskID: "t", Append: i > 0, Artifact: &a2a.Artifact{ID: "a", Parts: a2a.ContentParts{part}}}
			if err := streamed.grow(event, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := stored.replace(snapshot, false); err != nil {
			t.Fatal(err)
		}
		one, err1 := agent.readArtifacts(context.Background(), nil, streamed.artifacts, normalized.MIMEPlain)
		two, err2 := agent.readArtifacts(context.Background(), nil, stored.artifacts, normalized.MIMEPlain)
		want := strings.Join(words, "")
		if err1 != nil || err2 != nil || len(one) != 1 || len(two) != 1 || one[0].Content != want || two[0].Content != want {
			t.Fatalf("streamed %v, stored %v, want %q", one, two, want)
		}
	})
}

// TestAppendedPartsKeepTheirKind: words extend words, and nothing but the same document extends a document.
func TestAppendedPartsKeepTheirKind(t *testing.T) {
	agent := newAgent(t, "https://a.example/", nil)
	rapid.Check(t, func(t *rapid.T) {
		const word, csv, raw, data = 0, 1, 2, 3
		part := func(kind int, content string) *a2a.Part {
			switch kind {
			case csv:
				return &a2a.Part{Content: a2a.Text(content), MediaType: "text/csv", Filename: "x.csv"}
			case raw:
				return &a2a.Part{Content: a2a.Raw(content), MediaType: "image/png", Filename: "x.png"}
			case data:
				return a2a.NewDataPart(content)
			}
			return a2a.NewTextPart(content)
		}

		type row struct {
			kind    int
			content string
		}
		model := map[string][]row{}
		var ids []string
		var grown task
		for range rapid.IntRange(1, 12).Draw(t, "updates") {
			id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "artifact")
			kind := rapid.IntRange(word, data).Draw(t, "kind")
			content := rapid.StringMatching("[a-z]{1,4}").Draw(t, "content")
			appended := rapid.Bool().Draw(t, "append")
			event := &a2a.TaskArtifactUpdateEvent{TaskID: "t", Append: appended, Artifact: &a2a.Artifact{ID: a2a.ArtifactID(id), Parts: a2a.ContentParts{part(kind, content)}}}
			if err := grown.grow(event, false); err != nil {
				t.Fatal(err)
			}

			rows, known := model[id]
			if !known {
				ids = append(ids, id)
			}
			last := len(rows) - 1
			switch {
			case !appended:
				rows = []row{{kind, content}}
			case last >= 0 && rows[last].kind == kind && (kind == word || kind == csv):
				rows[last].content += content
			default:
				rows = append(rows, row{kind, content})
			}
			model[id] = rows
		}

		read, err := agent.readArtifacts(context.Background(), nil, grown.artifacts, normalized.MIMEPlain)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, p := range read {
			if p.Kind == normalized.PartText {
				got = append(got, "text "+p.Content)
				continue
			}
			content, _ := p.BytesRef.Bytes()
			got = append(got, p.MIME+" "+string(content))
		}
		for _, id := range ids {
			for _, r := range model[id] {
				want = append(want, []string{"text ", "text/csv ", "image/png ", "application/json "}[r.kind]+map[bool]string{true: `"` + r.content + `"`, false: r.content}[r.kind == data])
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestWhatGrowsIsTheAnswer: what readers see while an answer grows are its own parts, or the beginnings of them. Some readers, such as
// clients of the OpenAI API, never get these words replaced.
func TestWhatGrowsIsTheAnswer(t *testing.T) {
	agent := newAgent(t, "https://a.example/", nil)
	rapid.Check(t, func(t *rapid.T) {
		var grown task
		var shown preview
		ids := []string{"a", "b"}[:rapid.IntRange(1, 2).Draw(t, "artifacts")]
		begun := map[string]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "updates") {
			id := rapid.SampledFrom(ids).Draw(t, "artifact")
			event := &a2a.TaskArtifactUpdateEvent{TaskID: "t", Append: begun[id], Artifact: &a2a.Artifact{ID: a2a.ArtifactID(id)}}
			begun[id] = true
			for range rapid.IntRange(0, 3).Draw(t, "parts") {
				part := a2a.NewTextPart(rapid.StringMatching(" ?[a-z]{1,4} ?").Draw(t, "text"))
				switch rapid.IntRange(0, 5).Draw(t, "kind") {
				case 0:
					part = &a2a.Part{Content: a2a.Raw("x"), MediaType: "image/png", Filename: "x.png"}
				case 1:
					part.MediaType, part.Filename = "text/csv", "x.csv"
				case 2:
					part.MediaType = "text/markdown"
				}
				event.Artifact.Parts = append(event.Artifact.Parts, part)
			}
			if err := grown.grow(event, false); err != nil {
				t.Fatal(err)
			}
			shown.artifact(event, normalized.MIMEPlain)
			if rapid.IntRange(0, 5).Draw(t, "status") == 0 {
				shown.status(&a2a.Message{Parts: a2a.ContentParts{a2a.NewTextPart("Working")}})
			}
		}

		read, err := agent.readArtifacts(context.Background(), nil, grown.artifacts, normalized.MIMEPlain)
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, delta := range shown.deltas {
			if last := len(parts) - 1; delta.Kind == normalized.DeltaPartBegin {
				parts = append(parts, delta.Part.Content)
			} else if delta.Kind == normalized.DeltaText {
				parts[last] += delta.Text
			}
		}
		parts = slices.DeleteFunc(parts, func(part string) bool { return part == "Working" || wordsIn(part) == "" })
		for _, part := range parts {
			if !strings.Contains(wordsIn(textsOf(read)), wordsIn(part)) {
				t.Fatalf("%q is shown of %q", part, normalized.PlainText(read))
			}
		}
		if len(ids) == 1 && wordsIn(strings.Join(parts, "\n\n")) != wordsIn(textsOf(read)) {
			t.Fatalf("%q is shown of %q", parts, textsOf(read))
		}
	})
}

func wordsIn(text string) string { return strings.Join(strings.Fields(text), " ") }

func textsOf(parts []normalized.Part) (text string) {
	for _, part := range parts {
		if part.Kind == normalized.PartText {
			text += part.Content + "\n\n"
		}
	}
	return text
}

func TestManyTextsFit(t *testing.T) {
	var document strings.Builder
	for i := range 200 {
		fmt.Fprintf(&document, `,{"text":"word%d"}`, i)
	}
	server := startScripted(t, false, func(c *call) {
		c.result(`{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[` + document.String()[1:] + `]}}`)
	})
	got := mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x")).response
	if len(got.Parts) != 1 || !strings.HasSuffix(got.Parts[0].Content, "word199") {
		t.Errorf("%d parts", len(got.Parts))
	}
}

func FuzzCard(f *testing.F) {
	f.Add([]byte(`{"url":"https://a.example/","protocolVersion":"0.3.0","additionalInterfaces":[{"url":"https://b.example/","transport":"HTTP+JSON"}]}`))
	f.Add([]byte(`{"supportedInterfaces":[{"url":"https://a.example/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`))
	f.Add([]byte(`{"a2a":{"endpoint":"https://a.example/a2a","transport":"https+jsonrpc"}}`))
	agent := newFuzzAgent(f)
	f.Fuzz(func(t *testing.T, document []byte) {
		read, err := readCard(document)
		if err != nil {
			return
		}
		found, err := read.choose(agent.allowed)
		if err != nil {
			return
		}
		if found.url.Scheme != "https" || found.url.User != nil {
			t.Errorf("the card led to %s", found.url)
		}
		if _, err := http.NewRequest(http.MethodPost, found.url.String(), nil); err != nil {
			t.Error(err)
		}
	})
}

// addresses are the files of a turn of which only the addresses are asked for.
type addresses struct{}

func (addresses) Address(digest string) (string, time.Time) {
	return "https://inbox.example/" + digest[:4], time.Now().Add(time.Hour)
}

func (addresses) Put(context.Context, io.Reader) (string, int64, error) {
	return "", 0, fault.New(fault.Unavailable, "nothing is kept here")
}

func (addresses) Open(context.Context, string) (io.ReadCloser, error) {
	return nil, fault.New(fault.NotFound, "not opened here")
}

// TestTypesOfResults: what a result is comes back from servers of each version.
func TestTypesOfResults(t *testing.T) {
	for name, metadata := range map[string]string{
		"ours": `{"mentionable":{"artifact_type":"report"}}`, "plain": `{"artifact_type":"report"}`,
		"both": `{"mentionable":{"artifact_type":"report"},"artifact_type":"other"}`,
	} {
		server := startScripted(t, false, func(c *call) {
			c.result(wrapped(taskWith(`"timestamp":"2026-01-01T00:00:00Z"`, `,"artifacts":[{"artifactId":"result-1","description":"a map","metadata":`+metadata+`,"parts":[{"raw":"eA==","mediaType":"image/png","filename":"map.png"}]}]`)))
		})
		response := mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x")).response
		part := response.Parts[0]
		if part.Kind != normalized.PartArtifact || part.ArtifactType != "report" || part.ID != "result-1" || part.Description != "a map" {
			t.Errorf("%s: %+v", name, part)
		}
	}
}
