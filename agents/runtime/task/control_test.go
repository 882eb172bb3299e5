package task

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/internal/await"
)

// code gives the machine code of a refusal, "" for none.
func code(err error) string {
	if refused, is := errors.AsType[*Error](err); is {
		return refused.Code
	}
	return ""
}

func TestControlOfARun(t *testing.T) {
	control := NewControl(0, 0)
	mine, theirs, all := control.As(alice), control.As(mallory), control.As(manager)
	if err := mine.Start(t.Context(), "r1", "s1"); err != nil {
		t.Fatal(err)
	}
	for want, err := range map[string]error{
		CodeRunStarted:   mine.Start(t.Context(), "r1", "s1"),
		CodeRunForbidden: theirs.Start(t.Context(), "r1", "s1"),
		CodeInvalidRun:   mine.Start(t.Context(), " ", "s1"),
	} {
		if code(err) != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
	if err := mine.Start(t.Context(), "r1", "s2"); code(err) != CodeRunForbidden {
		t.Errorf("another session: %v", err)
	}
	if _, err := theirs.Cancel(t.Context(), "r1"); code(err) != CodeRunNotFound {
		t.Errorf("somebody else cancels: %v", err)
	}
	cancelled, err := mine.Cancel(t.Context(), "r1")
	if err != nil || cancelled["status"] != StatusCancelling || !envelope.Equal(cancelled["cancelled"], true) {
		t.Errorf("cancel = %v, %v", cancelled, err)
	}
	if is, err := mine.Cancelling(t.Context(), "r1"); !is || err != nil {
		t.Errorf("cancelling = %t, %v", is, err)
	}
	if err := mine.Finish(t.Context(), "r1", " Cancelled "); err != nil {
		t.Fatal(err)
	}
	again, err := mine.Cancel(t.Context(), "r1")
	if err != nil || again["status"] != StatusCancelled || !envelope.Equal(again["cancelled"], false) {
		t.Errorf("second cancel = %v, %v", again, err)
	}
	seen := []string{}
	for cursor, more := "", true; more; {
		page, err := all.Events(t.Context(), "r1", cursor, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range page["events"].([]any) {
			seen = append(seen, envelope.Text(envelope.Assoc(event)["type"]))
		}
		cursor, more = envelope.Text(page["cursor"]), envelope.Equal(page["has_more"], true)
	}
	if want := []string{eventStarted, eventCancelRequested, eventFinished, eventCancelRequested}; !cmp.Equal(seen, want) {
		t.Errorf("events = %v, want %v", seen, want)
	}
}

func TestControlQueue(t *testing.T) {
	control := NewControl(0, 0)
	mine := control.As(alice)
	if _, err := mine.Queue(t.Context(), "s1", nil); code(err) != CodeRunNotFound {
		t.Errorf("no run: %v", err)
	}
	if err := mine.Start(t.Context(), "r1", "s1"); err != nil {
		t.Fatal(err)
	}
	for position := 1; position <= maxMessagesOfSession; position++ {
		queued, err := mine.Queue(t.Context(), "s1", map[string]any{"message": "and then?"})
		if err != nil || queued["position"] != position || queued["status"] != StatusQueued || queued["run_id"] != "r1" {
			t.Fatalf("queued = %v, %v", queued, err)
		}
	}
	if _, err := mine.Queue(t.Context(), "s1", nil); code(err) != CodeQueueFull {
		t.Errorf("full queue: %v", err)
	}
	if _, err := control.As(mallory).TakeQueued(t.Context(), "s1"); code(err) != CodeRunNotFound {
		t.Errorf("somebody else takes: %v", err)
	}
	if err := control.As(mallory).Start(t.Context(), "r2", "s1"); err != nil {
		t.Fatal(err)
	}
	if waiting, err := control.As(mallory).TakeQueued(t.Context(), "s1"); err != nil || len(waiting) != 0 {
		t.Errorf("the name of a session opened a queue: %d, %v", len(waiting), err)
	}
	for _, want := range []int{maxMessagesOfSession, 0} {
		waiting, err := mine.TakeQueued(t.Context(), "s1")
		if err != nil || len(waiting) != want {
			t.Errorf("%d waiting, %v; want %d", len(waiting), err, want)
		}
	}
}

func TestControlClaimedOnce(t *testing.T) {
	control := NewControl(0, 0)
	var won atomic.Int32
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if control.As(alice).Start(t.Context(), "r1", "s1") == nil {
				won.Add(1)
			}
		})
	}
	await.Done(t, group.Wait, "all claims")
	if won.Load() != 1 {
		t.Errorf("%d claims, want 1", won.Load())
	}
}

func TestControlForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := NewControl(2, time.Hour)
		mine := control.As(alice)
		for _, run := range []string{"1", "2", "3"} {
			if err := mine.Start(t.Context(), run, "s"+run); err != nil {
				t.Fatal(err)
			}
			if _, err := mine.Queue(t.Context(), "s"+run, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := mine.Get(t.Context(), "1"); code(err) != CodeRunNotFound || len(control.queues) != 2 {
			t.Errorf("the first run is still there: %v, %d queues", err, len(control.queues))
		}
		for range maxEventsOfRun {
			if _, err := mine.Cancel(t.Context(), "3"); err != nil {
				t.Fatal(err)
			}
		}
		page, err := mine.Events(t.Context(), "3", "", 1)
		if err != nil || envelope.Text(envelope.Assoc(page["events"].([]any)[0])["id"]) != "1" || page["cursor"] != "2" {
			t.Errorf("page = %v, %v", page, err)
		}
		<-time.After(2 * time.Hour)
		if _, err := mine.Get(t.Context(), "3"); code(err) != CodeRunNotFound || len(control.queues) != 0 || control.order.Len() != 0 {
			t.Errorf("runs stay for ever: %v", err)
		}
	})
}
