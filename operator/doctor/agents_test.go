package doctor_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox"
	"inbox/adapters/email"
	"inbox/operator/doctor"
)

// toolServer is an MCP server with the tools notes/read and notes/write.
func toolServer(t *testing.T) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	for _, name := range []string{"read", "write"} {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	return web.URL
}

// TestDoctorLooksAtAgents: what answers for an agent is looked for without a run, and tools that no rule opens are named with the rule.
func TestDoctorLooksAtAgents(t *testing.T) {
	p := newPatient(t)
	smtp, peer := greeter(t, "220 mx.agents.test ESMTP"), greeter(t, "220 mail.peer.test ESMTP")
	asked := make(chan string, 1)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Method + " " + r.URL.Path:
		default:
		}
		_, _ = w.Write([]byte(`{"name":"x"}`))
	}))
	t.Cleanup(service.Close)
	closed := "http://" + greeterAt(t)

	agent := func(name, kind, keys string) string {
		return "[[agents]]\nname = \"" + name + "\"\nkind = \"" + kind + "\"\naccess = \"public\"\n[agents." + kind + "]\n" + keys + "\n"
	}
	found := p.examine(smtp, peer, "", strings.Join([]string{
		agent("hook", "webhook", "secret = \"0123456789\"\nurl = \""+service.URL+"\""), agent("nohook", "webhook", "secret = \"0123456789\"\nurl = \""+closed+"\""),
		agent("prog", "command", "program = \"true\""), agent("noprog", "command", "program = \"there-is-no-such-program\""),
		agent("far", "remote", "card_url = \""+service.URL+"/card\""), agent("gone", "remote", "card_url = \""+closed+"/card\""),
		agent("model", "llm", "model = \"m\"\nbase_url = \""+service.URL+"\""),
		"[[agents.mcp]]\nname = \"notes\"\nurl = \"" + toolServer(t) + "\"\n[[agents.mcp]]\nname = \"away\"\nurl = \"" + closed + "\"\n" +
			"[[agents.rules]]\neffect = \"allow\"\npurposes = [\"tool:notes/read\"]\n[[agents.client_tools]]\nname = \"look\"\ndescription = \"Looks.\"\n",
	}, ""), doctor.Options{})

	for name, want := range map[string]struct{ status, detail, remedy string }{
		"agent hook":   {email.FindingOK, "can be reached", ""},
		"agent nohook": {email.FindingFail, "nothing listens at 127.0.0.1:", "webhook of the agent"},
		"agent prog":   {email.FindingOK, "can be started", ""},
		"agent noprog": {email.FindingFail, "there is no program there-is-no-such-program", "command of the agent"},
		"agent far":    {email.FindingOK, "has a card", ""}, "agent gone": {email.FindingFail, "nothing listens at", "remote of the agent"},
		"agent model":               {email.FindingOK, "can be reached", ""},
		"MCP server notes of model": {email.FindingOK, "2 tools", ""}, "MCP server away of model": {email.FindingFail, "nothing listens at 127.0.0.1:", "agents.mcp"},
		"tools of model": {email.FindingWarn, "no rule opens client/look, notes/write", "[[agents.rules]]\neffect = \"allow\"\npurposes = [\"tool:client/look\", \"tool:notes/write\"]"},
	} {
		one, is := found[name]
		if !is || one.Status != want.status || !strings.Contains(one.Detail, want.detail) || !strings.Contains(one.Remedy, want.remedy) {
			t.Errorf("%q is %+v, want %+v", name, one, want)
		}
		if strings.Contains(one.Detail, "dial tcp") || strings.Contains(one.Detail, "exec:") {
			t.Errorf("%q speaks Go: %s", name, one.Detail)
		}
	}
	select {
	case request := <-asked:
		if request != "GET /card" {
			t.Errorf("the back ends were asked %s", request)
		}
	default:
		t.Error("no card was fetched")
	}
}

// TestDoctorJudgesOwnMail: without its records a signed mail proves nothing, and the line says so.
func TestDoctorJudgesOwnMail(t *testing.T) {
	p := newPatient(t)
	smtp, peer := greeter(t, "220 mx.agents.test ESMTP"), greeter(t, "220 mail.peer.test ESMTP")
	p.prepare = func(string) {
		p.names.mu.Lock()
		defer p.names.mu.Unlock()
		delete(p.names.records, "inbox._domainkey.agents.test.")
	}
	one := p.examine(smtp, peer, "", "", doctor.Options{})["signed mail from 127.0.0.25"]
	if one.Status != email.FindingFail || !strings.Contains(one.Detail, "SPF pass, DKIM permerror") {
		t.Errorf("a mail without a key that can be found: %+v", one)
	}
}

// TestDoctorWaits: what failed is looked at again until it does not, what did not fail is not.
func TestDoctorWaits(t *testing.T) {
	directory := t.TempDir()
	file, missing := filepath.Join(directory, "inbox.toml"), filepath.Join(directory, "program")
	var key atomic.Value
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"self": "http://%s/agents/a", "kid": "%s"}`, r.Host, key.Load())
	}))
	t.Cleanup(web.Close)
	text := "domain = \"" + strings.TrimPrefix(web.URL, "http://") + "\"\npublic_url = \"" + web.URL + "\"\ndata_dir = \"" + directory + "/data\"\n[smtp]\nlisten = \"off\"\n[http]\nlisten = \"" +
		strings.TrimPrefix(web.URL, "http://") + "\"\n[federation]\nallow_private = true\n[[agents]]\nname = \"a\"\nkind = \"command\"\n[agents.command]\nprogram = \"" + missing + "\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := inbox.LoadConfig(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := inbox.OpenOperator(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()

	keys, err := opened.Keys.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key.Store(keys[0].ID)

	waits := 0
	found, err := opened.Doctor.ExamineUntil(t.Context(), doctor.Options{}, time.Minute, func(found []doctor.Finding, next time.Duration) {
		waits++
		if doctor.Unwell(found) == nil || next <= 0 {
			t.Errorf("it waits %s for %+v", next, found)
		}
		if err := os.WriteFile(missing, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Error(err)
		}
	})
	if err != nil || doctor.Unwell(found) != nil || waits != 1 {
		t.Errorf("after %d waits %v: %+v", waits, err, found)
	}

	text = ""
	for _, one := range found {
		text += one.Name + ": " + one.Detail + "\n"
	}
	if !strings.Contains(text, "DNS: not looked at") || strings.Contains(text, "MX:") {
		t.Errorf("a name of this machine alone:\n%s", text)
	}
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	if found, err = opened.Doctor.ExamineUntil(t.Context(), doctor.Options{}, time.Millisecond, nil); err != nil || doctor.Unwell(found) == nil {
		t.Errorf("the time was over: %v %+v", err, found)
	}
}
