package llm

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/normalized"
)

// filesValue is the list under request.FilesKey.
func filesValue(t *testing.T, parts ...normalized.Part) any {
	t.Helper()
	body, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	list, err := value.Decode(body, value.Limits{Bytes: len(body)})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestFilesOfToolResults: files that the server stored with a result stand after it, and a line names each that has no room or is not there.
// What the model was shown once it is shown with each later call. A tool that names files in its own result gets none of them read.
func TestFilesOfToolResults(t *testing.T) {
	picture, rows := tinyPNG(t), []byte("pear;3")
	files := shelf{normalized.Digest(picture): picture, normalized.Digest(rows): rows}
	part := func(mime, name string, content []byte) normalized.Part {
		return normalized.Part{Kind: normalized.PartFile, MIME: mime, Name: name, Size: int64(len(content)), BytesRef: normalized.Stored(normalized.Digest(content))}
	}
	pictures := make([]normalized.Part, maxImages+2)
	for i := range pictures {
		pictures[i] = part("image/png", "pear.png", picture)
	}

	var asked []Request
	model := scripted(calls("client__pick", `{"q":"1"}`), calls("client__pick", `{"q":"2"}`), calls("client__pick", `{"q":"3"}`), says("Done."))
	listens := modelFunc(func(ctx context.Context, r Request, yield func(Delta) bool) error {
		asked = append(asked, r)
		for delta, err := range model.Stream(ctx, r) {
			if err != nil || !yield(delta) {
				return err
			}
		}
		return nil
	})
	agent := newAgent(t, Options{Provider: listens, Tools: []Tools{newOutsideBox(nil)}, Files: files})
	requests, turn := newOutside(), question("files")
	turn.Memory, turn.Requests = &memory{}, requests

	for _, result := range []map[string]any{
		{"result": "pears", "metadata": map[string]any{request.FilesKey: filesValue(t, pictures...)}},
		{"result": "rows", "metadata": map[string]any{request.FilesKey: filesValue(t, part("text/csv", "prices.csv", rows), part("image/png", "lost.png", []byte("lost")))}},
		{"result": map[string]any{"metadata": map[string]any{request.FilesKey: filesValue(t, part("text/csv", "prices.csv", rows))}}},
	} {
		if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
			t.Fatal(err)
		}
		requests.submit(t, requests.keep(t), result)
	}
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil || len(asked) != 4 {
		t.Fatalf("the model was asked %d times, %v", len(asked), err)
	}

	of := func(r Request, call int) (shown []Block) { // the turns: question, call, result, call, result, …
		for _, block := range r.Messages[2+2*call].Blocks {
			if block.Kind != BlockResult {
				shown = append(shown, block)
			}
		}
		return shown
	}
	first := of(asked[1], 0)
	if len(first) != 1+maxImages || strings.Count(first[0].Text, noMoreRoom) != 2 {
		t.Errorf("%d blocks after the first result, %q", len(first), first[0].Text)
	}
	second := of(asked[2], 1)
	if len(second) != 2 || !strings.Contains(second[1].Text, "pear;3") || !strings.Contains(second[0].Text, "lost.png") || !strings.Contains(second[0].Text, notHere) {
		t.Errorf("after the second result %+v", second)
	}
	if third := of(asked[3], 2); len(third) > 0 {
		t.Errorf("after a result that names files %+v", third)
	}
	for i, shown := range [][]Block{first, second} {
		if difference := cmp.Diff(shown, of(asked[3], i)); difference != "" {
			t.Errorf("result %d later: %s", i, difference)
		}
	}
}

// TestFilesOfResultsAreSummarized: a summary that takes the place of a result is of its files, too, and they count towards the threshold.
func TestFilesOfResultsAreSummarized(t *testing.T) {
	rows, picture := []byte("pear;3\n"+strings.Repeat("apple;2\n", 1000)+"plum;7"), tinyPNG(t)
	files := shelf{normalized.Digest(rows): rows, normalized.Digest(picture): picture}
	part := func(mime, name string, content []byte) normalized.Part {
		return normalized.Part{Kind: normalized.PartFile, MIME: mime, Name: name, Size: int64(len(content)), BytesRef: normalized.Stored(normalized.Digest(content))}
	}

	var asked []Request
	model := narrow(1<<20, &asked, calls("client__pick", `{"q":"1"}`), calls("client__pick", `{"q":"2"}`), calls("client__pick", `{"q":"3"}`), says("Done."))
	agent := newAgent(t, Options{
		Provider: model, Tools: []Tools{newOutsideBox(nil)}, Files: files, Compaction: &Compaction{Threshold: 10 << 10, Keep: 1, Archive: &cellar{}},
	})
	requests, turn := newOutside(), question("files")
	turn.Memory, turn.Requests = &memory{}, requests
	for _, result := range []map[string]any{
		{"result": "rows", "metadata": map[string]any{request.FilesKey: filesValue(t, part("text/csv", "prices.csv", rows), part("image/png", "pear.png", picture))}},
		{"result": "nothing"}, {"result": strings.Repeat("z", 2000)},
	} {
		if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
			t.Fatal(err)
		}
		requests.submit(t, requests.keep(t), result)
	}
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}

	summarized := ""
	for _, one := range asked {
		if one.System == howToSummarize {
			summarized += allOf(one)
		}
	}
	for _, want := range []string{"pear;3", "plum;7", `(Files of the result of "client__pick":)`, "are not in this text: 1."} {
		if !strings.Contains(summarized, want) {
			t.Errorf("no summary is of %q: %.300s", want, summarized)
		}
	}
	if last := allOf(asked[len(asked)-1]); !strings.Contains(last, "SUMMARY") || strings.Contains(last, "plum;7") {
		t.Errorf("the model reads %.300s", last)
	}
}
