package inbox_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
)

// arrivalsOffice calls the lists of the operator API.
type arrivalsOffice struct {
	*inboxtest.Server
	token string
}

type arrivalsAnswer struct {
	Turns []exchange.TurnRecord `json:"items"`
	Next  string                `json:"next"`
	After string                `json:"after"`
}

func (o arrivalsOffice) turns(query string) (answer arrivalsAnswer) {
	o.Helper()
	status, _, body := o.Read(http.MethodGet, "/api/v1/turns?"+query, o.token, "")
	if status != http.StatusOK {
		o.Fatalf("%s: %d %s", query, status, body)
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		o.Fatal(err)
	}
	return answer
}

func (o arrivalsOffice) says(text string) {
	o.Helper()
	if status, _, body := o.Read(http.MethodPost, "/v1/chat", "", fmt.Sprintf(`{"agent":"echo","message":%q}`, text)); status != http.StatusOK {
		o.Fatalf("%d %s", status, body)
	}
}

// TestArrivalsOverTheAPI: an operator lists what came in, finds it by its words, goes through its pages and is told of what comes.
func TestArrivalsOverTheAPI(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	token, _, err := s.Operator().Tokens.CreateAdmin(t.Context(), "desk")
	if err != nil {
		t.Fatal(err)
	}
	office := arrivalsOffice{s, token}

	begun := office.turns("")
	waiting := make(chan arrivalsAnswer, 1)
	go func() { waiting <- office.turns("wait=50s&after=" + begun.After) }()
	office.says("the first invoice")
	came := await.Receive(t, waiting, "the first message")
	if len(came.Turns) != 1 || came.After == begun.After {
		t.Fatalf("got %d messages, after %q", len(came.Turns), came.After)
	}
	for i := range 4 {
		office.says(fmt.Sprintf("greeting number%d", i))
	}

	followed := map[string]bool{came.Turns[0].ID: true}
	await.Until(t, "all messages", func() bool {
		more := office.turns("wait=1s&limit=2&after=" + came.After)
		for _, turn := range more.Turns {
			if followed[turn.ID] {
				t.Errorf("%s came twice", turn.ID)
			}
			followed[turn.ID] = true
		}
		came.After = more.After
		return len(followed) >= 5
	})

	var listed []string
	for before := ""; ; {
		page := office.turns("limit=2&agent=echo&channel=chat&before=" + url.QueryEscape(before))
		for _, turn := range page.Turns {
			listed = append(listed, turn.ID)
		}
		if before = page.Next; before == "" {
			break
		}
	}
	if len(listed) != 5 || !slices.IsSortedFunc(listed, func(a, b string) int { return cmp.Compare(b, a) }) {
		t.Errorf("listed %v", listed)
	}

	for query, want := range map[string]int{
		"text=" + url.QueryEscape(`"first invoice"`): 1, "text=" + url.QueryEscape("greet* number2"): 1, "text=nothing": 0,
		"since=1h": 5, "until=1h": 0, "state=held": 0, "sender=" + url.QueryEscape("@nowhere.example"): 0, "agent=none": 0,
	} {
		await.Until(t, query, func() bool { return len(office.turns(query).Turns) == want })
	}
	for _, query := range []string{"state=lost", "since=yesterday", "text=%2A", "before=%00", "limit=501", "after=x", "after=1&wait=long", "after=1&before=2", "text=a&before=zz"} {
		if status, _, body := s.Read(http.MethodGet, "/api/v1/turns?"+query, token, ""); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}

	status, _, body := s.Read(http.MethodGet, "/api/v1/threads?agent=echo&limit=2", token, "")
	var threads struct {
		Threads []struct {
			TurnID   string `json:"turn_id"`
			Messages int    `json:"messages"`
		} `json:"items"`
		Next string `json:"next"`
	}
	if err := json.Unmarshal([]byte(body), &threads); err != nil || status != http.StatusOK || len(threads.Threads) != 2 || threads.Threads[0].TurnID != listed[0] ||
		threads.Threads[0].Messages < 1 || threads.Next == "" {
		t.Errorf("%d %s, %v", status, body, err)
	}
}
