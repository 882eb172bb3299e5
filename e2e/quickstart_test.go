package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/peer"
)

const newDomain = "agents.example"

// TestQuickstart goes the way of an operator from an empty directory to the first answers.
func TestQuickstart(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { onInternet(t, "", func(w *internet) { w.quickstart() }) })
	t.Run("postgres", func(t *testing.T) {
		database := ""
		if os.Getenv(insideInternet) == "" {
			database = postgres(t)
		}
		onInternet(t, database, func(w *internet) { w.quickstart() })
	})
}

func (w *internet) quickstart() {
	began := time.Now()
	life := time.Hour
	if w.database != "" {
		life = certificateLife
	}
	w.openAuthority(life)
	w.openSocial()
	w.openMail()

	m := w.newMachine("45.80.0.10")
	m.sh("ln -s " + w.directory + "/inbox inbox")
	w.t.Logf("the world is ready after %s", time.Since(began))

	m.sh("inbox init --yes --domain " + newDomain + " --email me@example.org --agent helper --kind echo --mail mx")
	w.publishPrinted(m.sh("inbox dns --json"))
	w.publish("%s. 60 IN A 45.80.0.10", newDomain, "10.0.80.45.in-addr.arpa. 60 IN PTR %s.", newDomain)
	m.background("exec inbox serve")
	m.sh("inbox doctor --wait 60s")
	m.shows(newDomain)
	w.t.Logf("the certificate is there after %s", time.Since(began))

	w.mention()
	w.mail("helper@" + newDomain)
	w.task(lastLine(m.sh("inbox tokens create --agent helper world")))
	w.t.Logf("all answered after %s", time.Since(began))
	if w.database != "" {
		w.secondNode(m)
	}
}

// secondNode is what an operator does who wants another node: it has the files of the first one, and thereby its certificates.
func (w *internet) secondNode(first *machine) {
	w.t.Helper()
	second := w.newMachine("45.80.0.11")
	second.sh("cp -r " + first.directory + "/* . && sed -i s:" + first.directory + ":$PWD: inbox.toml && rm -r data")
	second.background("exec inbox serve")
	before := second.shows(newDomain)
	await.Until(w.t, "both nodes show the same renewed certificate", func() bool {
		now := first.shows(newDomain)
		return now != before && now == second.shows(newDomain)
	})
}

func (w *internet) mention() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conversation, err := w.social.Ask(ctx, "", "@helper@"+newDomain, "hello from the fediverse")
	if err != nil || !strings.Contains(conversation.Answer, "hello from the fediverse") {
		w.t.Fatalf("the mention: %q, %v", conversation.Answer, err)
	}
}

func (w *internet) mail(to string) {
	w.t.Helper()
	bring(w.t, "127.0.0.1:587", "ann@"+mailDomain, to, load.Mail{
		MessageID: "first@" + mailDomain, From: "ann@" + mailDomain, To: to, Subject: "Hello", Body: "hello by mail",
	}.Bytes())
	var answer load.Received
	await.Until(w.t, "the answer by mail", func() bool {
		for _, letter := range w.letters() {
			if letter.Field("In-Reply-To") == "first@"+mailDomain {
				answer = letter
			}
		}
		return answer.Raw != nil
	})
	if proof := answer.Header.Get("Authentication-Results"); !strings.Contains(proof, "dkim=pass") {
		w.t.Errorf("the answer has the proof %q", proof)
	}
}

func (w *internet) task(token string) {
	w.t.Helper()
	client, err := peer.NewA2A(peer.A2AOptions{Token: token})
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conversation, err := client.Ask(ctx, "https://"+newDomain+"/a2a/helper/.well-known/agent-card.json", "hello by a task")
	if err != nil || !strings.Contains(conversation.Answer, "hello by a task") {
		w.t.Fatalf("the task: %q, %v", conversation.Answer, err)
	}
}
