package doctor_test

import (
	"context"
	"fmt"
	"maps"
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

// toolServer is an MCP server with some tools.
func toolServer(t *testing.T, tools ...string) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	for _, name := range tools {
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
		"[[agents.mcp]]\nname = \"notes\"\nurl = \"" + toolServer(t, "read", "write") + "\"\n[[agents.mcp]]\nname = \"away\"\nurl = \"" + closed + "\"\n" +
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

// TestDoctorShowsNamesOfTools: the operator sees under which name models know each tool, and which tools share one.
func TestDoctorShowsNamesOfTools(t *testing.T) {
	p := newPatient(t)
	smtp, peer := greeter(t, "220 mx.agents.test ESMTP"), greeter(t, "220 mail.peer.test ESMTP")
	model := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(model.Close)
	config := "[[agents]]\nname = \"dev\"\nkind = \"llm\"\naccess = \"public\"\n[agents.llm]\nmodel = \"m\"\nbase_url = \"" + model.URL + "\"\nagents = [\"@dev@elsewhere.example\"]\n"
	for name, tools := range map[string][]string{"git-hub": {"list"}, "git": {"hub-list"}, "users": {"getUser", "get_user", "find"}} {
		config += "[[agents.mcp]]\nname = \"" + name + "\"\nurl = \"" + toolServer(t, tools...) + "\"\n"
	}
	found := p.examine(smtp, peer, "", config+"[[agents.client_tools]]\nname = \"look\"\ndescription = \"Looks.\"\n", doctor.Options{})

	want := map[string]string{"client/look": "client__look", "git-hub/list": "git-hub__list", "git/hub-list": "git__hub-list", "users/find": "users__find"}
	names := found["tool names of dev"]
	if names.Status != email.FindingOK || !maps.Equal(names.ToolNames, want) {
		t.Errorf("%+v, want %v", names, want)
	}
	if said := "names for models: client/look = client__look, git-hub/list = git-hub__list, git/hub-list = git__hub-list, users/find = users__find"; names.Detail != said {
		t.Errorf("%q, want %q", names.Detail, said)
	}
	if one := found["tool users/get_user of dev"]; one.Status != email.FindingWarn ||
		!strings.Contains(one.Detail, `"getUser" and "get_user" of the server are both users/get_user; to have only "get_user", write forbidden = ["getUser"]`) || one.Remedy == "" {
		t.Errorf("two tools of one name: %+v", one)
	}
}

// TestDoctorFindsSettingsThatMatchNoTool: an approval under a wrong name is told, one that works is no closed tool, and the rule that the doctor writes
// makes a configuration that loads.
func TestDoctorFindsSettingsThatMatchNoTool(t *testing.T) {
	p := newPatient(t)
	smtp, peer := greeter(t, "220 mx.agents.test ESMTP"), greeter(t, "220 mail.peer.test ESMTP")
	model := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(model.Close)
	head := "[[agents]]\nname = \"helper\"\nkind = \"llm\"\n"
	tables := "[agents.llm]\nmodel = \"m\"\nbase_url = \"" + model.URL + "\"\n" +
		"[agents.llm.actions]\npreview = [\"notes/addNote\", \"notes/drop_*\"]\nforbidden = [\"notes/hide\", \"away/x\"]\n[[agents.llm.budgets.tools]]\nname = \"notes/drop\"\ncalls = 1\n" +
		"[[agents.mcp]]\nname = \"notes\"\nurl = \"" + toolServer(t, "add_note", "send", "hide", "drop_all", "drop") + "\"\npreview = [\"notes__send\", \"sned\"]\n" +
		"[[agents.mcp]]\nname = \"away\"\nurl = \"http://" + greeterAt(t) + "\"\n"
	found := p.examine(smtp, peer, "", head+tables, doctor.Options{})

	for name, want := range map[string]string{
		"agents[helper].llm.actions.preview": `"notes/addNote" matches no tool; settings take the name notes/add_note`,
		"agents[helper].mcp[notes].preview":  `"sned" matches no tool of the server`,
		"tools of helper":                    "no rule opens notes/add_note, notes/drop: the model never sees them",
	} {
		if one := found[name]; one.Status != email.FindingWarn || one.Detail != want || one.Remedy == "" {
			t.Errorf("%s is %+v, want %q", name, one, want)
		}
	}
	if one := found["approvals of helper"]; one.Status != email.FindingOK || one.Detail != "offered to every sender, each call waits for approval: notes/drop_all, notes/send" {
		t.Errorf("tools that need approval: %+v", one)
	}
	for _, name := range []string{"agents[helper].llm.actions.forbidden", "agents[helper].llm.budgets.tools[0].name"} {
		if one, is := found[name]; is {
			t.Errorf("%s may be right: %+v", name, one)
		}
	}

	remedy := found["tools of helper"].Remedy
	access, rule, is := strings.Cut(remedy, "[[agents.rules]]")
	if !is || !strings.Contains(access, `write access = "public" below the name of the agent`) {
		t.Fatalf("the remedy is %q", remedy)
	}
	again := p.examine(smtp, peer, "", head+"access = \"public\"\n"+tables+"[[agents.rules]]"+rule+"\n", doctor.Options{})
	if one, is := again["tools of helper"]; is {
		t.Errorf("after the remedy: %+v", one)
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
