package a2a

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

func TestListPages(t *testing.T) {
	b := setup(t)
	golden(t, "list-empty.json", b.rpc(b.ada, "ListTasks", "{}").body)
	var sent []string
	for i := range 5 {
		sent = append(sent, b.rpc(b.ada, "SendMessage", message(fmt.Sprint("m", i), "hello")).text(t, "result.task.id"))
	}
	for _, filter := range []string{"", `"status":"TASK_STATE_COMPLETED",`} {
		var got []string
		token := ""
		for range 4 {
			r := b.rpc(b.ada, "ListTasks", `{`+filter+`"pageSize":2,"pageToken":"`+token+`"}`)
			if r.at(t, "result.totalSize") != 5.0 || r.at(t, "result.tasks.0.artifacts") != nil {
				t.Errorf("page %s", r.body)
			}
			for i := range int(r.at(t, "result.tasks.#").(float64)) {
				got = append(got, r.text(t, fmt.Sprintf("result.tasks.%d.id", i)))
			}
			if token = r.text(t, "result.nextPageToken"); token == "" {
				break
			}
		}
		if len(got) != 5 || got[0] != sent[4] || got[4] != sent[0] {
			t.Errorf("filter %q: listed %v of %v", filter, got, sent)
		}
	}
	with := b.rpc(b.ada, "ListTasks", `{"pageSize":1,"includeArtifacts":true,"historyLength":1}`)
	golden(t, "list.json", strings.Replace(with.body, with.text(t, "result.nextPageToken"), "TOKEN", 1))
	after := b.rpc(b.ada, "ListTasks", `{"statusTimestampAfter":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`)
	if after.at(t, "result.totalSize") != 0.0 {
		t.Errorf("after the future: %s", after.body)
	}
}

func TestListByState(t *testing.T) {
	b := setup(t)
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		switch text := r.turn.Message.Parts[0].Content; text {
		case "ask", "give up":
			return asking(ctx, r)
		case "fail":
			return normalized.Response{Status: normalized.StatusFailed}
		case "wait":
			<-ctx.Done()
		}
		return echo(ctx, r)
	}
	for i, text := range []string{"ask", "give up", "fail", "fine"} {
		task := b.rpc(b.ada, "SendMessage", message(fmt.Sprint("m", i), text)).text(t, "result.task.id")
		if text == "give up" {
			b.rpc(b.ada, "CancelTask", `{"id":"`+task+`"}`)
		}
	}
	b.rpc(b.ada, "SendMessage", `{"configuration":{"returnImmediately":true},`+message("m9", "wait")[1:])
	for state, want := range map[string]float64{
		"INPUT_REQUIRED": 1, "CANCELED": 1, "FAILED": 1, "COMPLETED": 1, "REJECTED": 0, "AUTH_REQUIRED": 0,
	} {
		r := b.rpc(b.ada, "ListTasks", `{"status":"TASK_STATE_`+state+`"}`)
		if r.at(t, "result.totalSize") != want || r.at(t, "result.tasks.#") != want {
			t.Errorf("%s: %s", state, r.body)
		}
	}
	if r := b.rpc(b.ada, "ListTasks", "{}"); r.at(t, "result.totalSize") != 5.0 {
		t.Errorf("all: %s", r.body)
	}
}

func TestCancel(t *testing.T) {
	b := setup(t)
	running, stopped := make(chan struct{}), make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		if r.turn.Message.Parts[0].Content == "buy" {
			return asking(ctx, r)
		}
		close(running)
		<-ctx.Done()
		close(stopped)
		return normalized.Response{}
	}
	task := b.rpc(b.ada, "SendMessage", `{"configuration":{"returnImmediately":true},`+message("m1", "x")[1:]).text(t, "result.task.id")
	await.Receive(t, running, "the agent to work")
	golden(t, "cancel.json", b.rpc(b.ada, "CancelTask", `{"id":"`+task+`"}`).body)
	await.Receive(t, stopped, "the end of the cancelled run")
	golden(t, "error-cancel.json", b.rpc(b.ada, "CancelTask", `{"id":"`+task+`"}`).body)

	asked := b.rpc(b.ada, "SendMessage", message("m2", "buy")).text(t, "result.task.id")
	for i, want := range []string{"TASK_STATE_CANCELED", ""} {
		if r := b.rpc(b.ada, "CancelTask", `{"id":"`+asked+`"}`); r.text(t, "result.status.state") != want {
			t.Errorf("cancel %d of a task that asks: %s", i, r.body)
		}
	}
	if r := b.rpc(b.ada, "GetTask", `{"id":"`+asked+`"}`); r.text(t, "result.status.state") != "TASK_STATE_CANCELED" {
		t.Errorf("read again: %s", r.body)
	}
	if r := b.rpc(b.ada, "SendMessage", follow("m3", asked, "")); r.at(t, "error.code") != -32004.0 {
		t.Errorf("message after the end: %s", r.body)
	}
}

func FuzzPageToken(f *testing.F) {
	f.Add("")
	f.Add(writePageToken(exchange.TurnCursor(exchange.TurnRecord{ID: newID(), UpdatedAt: time.Now()})))
	f.Add(base64.RawURLEncoding.EncodeToString([]byte("1.2")))
	f.Fuzz(func(t *testing.T, token string) {
		cursor, err := readPageToken(token)
		if err != nil || token == "" {
			return
		}
		at, id, _ := strings.Cut(cursor, ".")
		if len(id) != uuidLength || at == "" {
			t.Errorf("%q gave the cursor %q", token, cursor)
		}
	})
}

func FuzzContext(f *testing.F) {
	o := owner{agent: "echo", principal: "agents.test token:1"}
	f.Add("general")
	f.Add(o.mintContext())
	f.Add("")
	f.Fuzz(func(t *testing.T, contextID string) {
		mine, found := o.thread(contextID)
		theirs, foreign := owner{agent: "echo", principal: "agents.test token:2"}.thread(contextID)
		if found && foreign && mine == theirs {
			t.Errorf("two owners share the thread %q", mine)
		}
	})
}
