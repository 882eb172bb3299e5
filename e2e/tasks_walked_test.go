package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
)

const (
	tasksPage  = "docs/guides/README.md"
	tasksBound = 2 * time.Minute // for one task

	// There is no registry of packages here; scripts/install-test-dependencies has installed these.
	noRegistry = "npm() { [ \"$*\" = 'install typescript @types/node' ] && ln -s \"$CHECKOUT/e2e/peers/node_modules\" .; }\n"

	// The agent that is there already in docs/guides/a2a-agent.md: to this server it is any A2A agent elsewhere.
	agentElsewhere = "cd \"$BESIDE\"; INBOX_DATA_DIR=other INBOX_HTTP_LISTEN=127.0.0.1:8090 INBOX_PUBLIC_URL=http://localhost:8090 INBOX_SMTP_LISTEN=off exec inbox serve"
)

// walkedTask is a row of the table of tasks.
type walkedTask struct{ title, guide string }

var taskRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| \[[^\]]+\]\(([a-z0-9-]+\.md)\) \|$`)

// tasksOfTheGuides reads the table. Each of its rows is a guide that is walked, and each of those is a row.
func tasksOfTheGuides(t *testing.T) (tasks []walkedTask) {
	t.Helper()
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, tasksPage))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Tasks\n")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string]bool{}
	for _, row := range taskRow.FindAllStringSubmatch(table, -1) {
		name := "docs/guides/" + row[2]
		if !guides[name].walked {
			t.Errorf("%s has the task %q, and nothing walks %s", tasksPage, row[1], name)
		}
		tasks, listed[name] = append(tasks, walkedTask{row[1], name}), true
	}
	for name, one := range guides {
		if one.walked && !listed[name] {
			t.Errorf("%s is walked and is no task of %s", name, tasksPage)
		}
	}
	if rows := strings.Count(table, "\n| ") - 1; rows != len(tasks) || rows < 10 {
		t.Errorf("%s has %d rows, of which %d are tasks with a guide; want ten and more", tasksPage, rows, len(tasks))
	}
	return tasks
}

// TestTasks walks through the tasks of docs/guides/README.md: each begins in an empty directory of a machine of its own and has the commands of
// its guide, and nothing else. What the guide shows has to come.
func TestTasks(t *testing.T) {
	database := ""
	if os.Getenv(insideInternet) == "" {
		database = emptyPostgres(t)
	}
	onInternet(t, database, func(w *internet) {
		w.trust()
		w.openShelf()
		ran := &record{}
		for i, task := range tasksOfTheGuides(t) {
			t.Run(filepath.Base(task.guide), func(t *testing.T) {
				t.Parallel()
				here := *w
				here.t = t
				h := here.newWalk(fmt.Sprintf("45.80.0.%d", 100+i), task.guide)
				began := time.Now()
				commands := h.follow(readManual(t, task.guide), ran)
				took := time.Since(began)
				if h.end(); took > tasksBound {
					t.Errorf("it took %s; want less than %s", took, tasksBound)
				}
				ran.followed("task: "+task.title, commands, took)
			})
		}
		t.Cleanup(func() {
			ran.complete(t, true)
			ran.write(t)
		})
	})
}

// newWalk is an empty directory, with what the guide says that its reader has.
func (w *internet) newWalk(address, name string) *house {
	t := w.t
	t.Helper()
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	h := &house{machine: w.newMachine(address), guide: guides[name], t: t, beside: t.TempDir(), running: map[string]*launched{}}
	h.variables = append(os.Environ(), "PATH="+w.directory+":"+os.Getenv("PATH"), "BESIDE="+h.beside, "CHECKOUT="+root, "DATABASE="+w.database)
	h.write(filepath.Join(h.beside, "functions.sh"), guideFunctions+noRegistry)
	for file, content := range h.files {
		h.write(file, content)
	}
	if h.first != "" {
		h.machine.background(h.script(h.first))
	}
	if h.runs {
		h.start(serving)
	}
	if h.before != "" {
		h.shell(h.before)
	}
	return h
}
