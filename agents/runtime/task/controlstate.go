package task

import (
	"strconv"
	"time"
)

// find gives a run that the caller may know of.
func (c *Control) find(caller Caller, runID string) *controlled {
	c.forget()
	run := c.runs[runID]
	if run == nil || (!caller.Manager && run.owner != caller.fingerprint()) {
		return nil
	}
	return run
}

// latest gives the run of a session whose last change is the newest.
func (c *Control) latest(caller Caller, sessionID string) *controlled {
	for place := c.order.Back(); place != nil; place = place.Prev() {
		run := place.Value.(*controlled)
		if run.session == sessionID && (caller.Manager || run.owner == caller.fingerprint()) {
			return run
		}
	}
	return nil
}

// change sets the status and records why.
func (c *Control) change(run *controlled, status, event string) {
	run.status, run.updated = status, time.Now()
	c.order.MoveToBack(run.place)
	run.events = append(run.events, map[string]any{
		"id": strconv.Itoa(run.forgotten + len(run.events)), "type": event, "created_at": timestamp(),
		"metadata": map[string]any{"status": status},
	})
	if surplus := len(run.events) - maxEventsOfRun; surplus > 0 {
		run.events = append([]map[string]any(nil), run.events[surplus:]...)
		run.forgotten += surplus
	}
}

func (c *Control) forget() {
	limit := time.Now().Add(-c.retain)
	for oldest := c.order.Front(); oldest != nil; oldest = c.order.Front() {
		run := oldest.Value.(*controlled)
		if !run.updated.Before(limit) {
			return
		}
		c.remove(run)
	}
}

// remove forgets a run, and what waits for its session when it was the last one there.
func (c *Control) remove(run *controlled) {
	c.order.Remove(run.place)
	delete(c.runs, run.id)
	if len(c.queues[run.conversation()]) == 0 {
		return
	}
	for _, other := range c.runs {
		if other.conversation() == run.conversation() {
			return
		}
	}
	delete(c.queues, run.conversation())
}

func (r *controlled) conversation() conversation { return conversation{r.session, r.owner} }

func (r *controlled) object() map[string]any {
	object := map[string]any{
		"run_id": r.id, "session_id": r.session, "status": r.status, "metadata": map[string]any{},
		"started_at": r.started.UTC().Format(timeForm), "updated_at": r.updated.UTC().Format(timeForm),
	}
	if r.cancelled != nil {
		object["cancelled"] = *r.cancelled
	}
	return object
}
