package activitypub

import (
	"testing"

	"inbox/exchange"
)

// TestOthersReadANote: whom a note reaches is said in all of its fields and those of its activity.
func TestOthersReadANote(t *testing.T) {
	for name, row := range map[string]struct {
		write func(r *rig, activity, note map[string]any)
		want  bool
	}{
		"the agent alone": {func(*rig, map[string]any, map[string]any) {}, false},
		"the agent of the activity alone": {func(_ *rig, _, note map[string]any) {
			delete(note, "to")
			delete(note, "cc")
		}, false},
		"cc of the note": {func(r *rig, _, note map[string]any) { note["cc"] = []string{r.remote.actor("bob")} }, true},
		"cc of the activity alone": {func(r *rig, activity, note map[string]any) {
			activity["cc"] = []string{r.remote.actor("bob")}
			delete(note, "to")
			delete(note, "cc")
		}, true},
		"cc of the activity beside that of the note": {func(r *rig, activity, _ map[string]any) { activity["cc"] = []string{r.remote.actor("bob")} }, true},
		"somebody else instead of the agent":         {func(r *rig, _, note map[string]any) { note["to"] = []string{r.remote.actor("bob")} }, true},
		"a group":                                    {func(r *rig, _, note map[string]any) { note["audience"] = r.remote.base + "/groups/x" }, true},
		"blind":                                      {func(r *rig, _, note map[string]any) { note["bcc"] = r.remote.actor("bob") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			activity := r.mentionNote("1", "link-0123456789abcdef")
			note := activity["object"].(map[string]any)
			addressTo(activity, note, r.base+"/agents/echo")
			row.write(r, activity, note)
			r.want(at(r.deliver(activity), "/agents/echo/inbox").sign(), 202, "")
			all := r.engine.All()
			if len(all) != 1 {
				t.Fatal(all)
			}
			turn := exchange.TurnRecord{Message: all[0].Message, Audience: all[0].Audience}
			if turn.OthersRead() != row.want {
				t.Errorf("%v: %+v", turn.OthersRead(), turn.Message.Surface)
			}
		})
	}
}
