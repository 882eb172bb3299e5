package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/peer"
)

// The domains of one server. The second has a name of its own for the web, the third for mail.
const (
	firstDomain  = "agents.example"
	secondDomain = "second.example"
	thirdDomain  = "third.example"
)

const furtherDomains = `
[[domains]]
name = "second.example"
public_url = "https://inbox.second.example"
contact = "second@example.org"

[[domains]]
name = "third.example"
mail_host = "mx.third.example"

[[agents]]
name = "helper"
kind = "echo"
domain = "second.example"
display_name = "Helper of the second"
unverified = "answer"

[[agents]]
name = "single"
kind = "echo"
domain = "third.example"
`

// TestSeveralDomains runs three domains on one server in a network of its own, each with its certificate, keys and agents.
func TestSeveralDomains(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { onInternet(t, "", func(w *internet) { w.severalDomains() }) })
	t.Run("postgres", func(t *testing.T) {
		database := ""
		if os.Getenv(insideInternet) == "" {
			database = postgres(t)
		}
		onInternet(t, database, func(w *internet) { w.severalDomains() })
	})
}

func (w *internet) severalDomains() {
	life := time.Hour
	if w.database != "" {
		life = certificateLife
	}
	w.openAuthority(life)
	w.openSocial()
	w.openMail()

	m := w.newMachine("45.80.0.10")
	m.sh("ln -s " + w.directory + "/inbox inbox")
	m.sh("inbox init --yes --domain " + firstDomain + " --email me@example.org --agent helper --kind echo --mail mx")
	m.sh("cat >> inbox.toml <<'END'\n" + furtherDomains + "END")
	if said := m.sh("inbox config check"); !strings.Contains(said, "and domain third.example, 1 agent\n") {
		w.t.Errorf("inbox config check says %q", said)
	}
	w.publishPrinted(m.sh("inbox dns --json"))
	for _, host := range []string{firstDomain, "inbox." + secondDomain, secondDomain, thirdDomain, "mx." + thirdDomain, "mta-sts." + secondDomain, "mta-sts." + thirdDomain} {
		w.publish("%s. 60 IN A 45.80.0.10", host)
	}
	w.publish("10.0.80.45.in-addr.arpa. 60 IN PTR %s.", firstDomain)
	m.background("inbox serve")
	m.sh("inbox doctor --wait 60s")

	for _, host := range []string{firstDomain, "inbox." + secondDomain, secondDomain, thirdDomain, "mx." + thirdDomain, "mta-sts." + secondDomain} {
		m.shows(host)
	}

	addresses := []string{"helper@" + firstDomain, "helper@" + secondDomain, "single@" + thirdDomain}
	for _, address := range addresses {
		w.asksByMention(address)
	}
	w.tellsOfOneDomain()
	w.mailsAll(addresses)
	for _, base := range []string{"https://" + firstDomain + "/a2a/helper", "https://inbox." + secondDomain + "/a2a/helper", "https://" + thirdDomain + "/a2a/single"} {
		w.asksByTask(m, base)
	}
	w.neverShowsTheOther(m)
	w.eachHasItsOwn(m)
	w.changesByReload(m)
}

func (w *internet) asksByMention(address string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conversation, err := w.social.Ask(ctx, "", "@"+address, "hello "+address)
	if err != nil || !strings.Contains(conversation.Answer, "hello "+address) {
		w.t.Fatalf("the mention of %s: %q, %v", address, conversation.Answer, err)
	}
}

// tellsOfOneDomain reads what the servers of the fediverse got: each request, with its headers and its signature, is of one domain, and
// each domain has delivered an answer.
func (w *internet) tellsOfOneDomain() {
	w.t.Helper()
	answers := map[string]bool{}
	for _, request := range w.told.all() {
		var named []string
		for _, domain := range []string{firstDomain, secondDomain, thirdDomain} {
			if strings.Contains(request, domain) {
				named = append(named, domain)
			}
		}
		if len(named) != 1 {
			w.t.Errorf("a request to another server names %q, want one domain:\n%s", named, request)
			continue
		}
		if strings.HasPrefix(request, "POST ") {
			answers[named[0]] = true
		}
	}
	if len(answers) != 3 {
		w.t.Errorf("answers came from %v, want three domains", answers)
	}
}

// mailsAll sends mail to agents of all domains. Each answer is signed by its own domain.
func (w *internet) mailsAll(addresses []string) {
	w.t.Helper()
	for _, address := range addresses {
		bring(w.t, "127.0.0.1:587", "ann@"+mailDomain, address, load.Mail{
			MessageID: "to-" + domainOf(address) + "@" + mailDomain, From: "ann@" + mailDomain, To: address, Subject: "Hello", Body: "hello by mail",
		}.Bytes())
	}

	answers := map[string]load.Received{}
	await.Until(w.t, "the answers of all domains by mail", func() bool {
		for _, letter := range w.letters() {
			if strings.HasPrefix(letter.Field("In-Reply-To"), "to-") {
				answers[letter.Field("In-Reply-To")] = letter
			}
		}
		return len(answers) == len(addresses)
	})

	for _, letter := range answers {
		from := letter.Field("From")
		domain := strings.Trim(domainOf(from), ">")
		if proof := letter.Header.Get("Authentication-Results"); !strings.Contains(proof, "dkim=pass") || !strings.Contains(proof, "header.d="+domain) {
			w.t.Errorf("the answer of %s has the proof %q", from, proof)
		}
		for _, other := range []string{firstDomain, secondDomain, thirdDomain} {
			// The address is that of all of them, and its name is in Received.
			received, rest, _ := bytes.Cut(letter.Raw, []byte("\tby mx."))
			own := slices.Concat(received[:max(0, bytes.LastIndex(received, []byte("Received: ")))], rest)
			if other != domain && bytes.Contains(own, []byte(other)) {
				w.t.Errorf("the answer of %s shows %s:\n%s", from, other, letter.Raw)
			}
		}
	}
}

// domainOf is what stands after the last @.
func domainOf(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

func (w *internet) asksByTask(m *machine, base string) {
	w.t.Helper()
	domain := strings.TrimPrefix(strings.SplitN(base, "/", 4)[2], "inbox.")
	agent := base[strings.LastIndexByte(base, '/')+1:]
	token := lastLine(m.sh("inbox tokens create --domain " + domain + " --agent " + agent + " world"))
	client, err := peer.NewA2A(peer.A2AOptions{Token: token})
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conversation, err := client.Ask(ctx, base+"/.well-known/agent-card.json", "hello by a task")
	if err != nil || !strings.Contains(conversation.Answer, "hello by a task") {
		w.t.Fatalf("the task of %s: %q, %v", base, conversation.Answer, err)
	}
}

// page gets a page of the server.
func (w *internet) page(address string) (status int, body string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, address, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Accept", "application/activity+json, application/json, text/html;q=0.5")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// neverShowsTheOther reads what each domain publishes.
func (w *internet) neverShowsTheOther(m *machine) {
	w.t.Helper()
	hosts := map[string]string{firstDomain: firstDomain, secondDomain: "inbox." + secondDomain, thirdDomain: thirdDomain}
	agents := map[string]string{firstDomain: "helper", secondDomain: "helper", thirdDomain: "single"}
	for domain, host := range hosts {
		agent := agents[domain]
		for _, path := range []string{
			"/", "/@" + agent, "/agents/" + agent, "/a2a/" + agent + "/.well-known/agent-card.json", "/.well-known/agent-card.json",
			"/.well-known/webfinger?resource=acct:" + agent + "@" + domain, "/.well-known/nodeinfo", "/nodeinfo/2.1", "/.well-known/jwks.json", "/@" + agent + "/chat",
		} {
			status, body := w.page("https://" + host + path)
			if status != http.StatusOK {
				w.t.Errorf("https://%s%s: %d %s", host, path, status, body)
			}
			for other := range hosts {
				if other != domain && strings.Contains(body, other) {
					w.t.Errorf("https://%s%s shows %s:\n%s", host, path, other, body)
				}
			}
		}

		for other, name := range agents {
			if other == domain {
				continue
			}
			if status, body := w.page("https://" + host + "/.well-known/webfinger?resource=acct:" + name + "@" + other); status != http.StatusNotFound {
				w.t.Errorf("%s answers for %s@%s: %d %s", host, name, other, status, body)
			}
		}
	}

	if status, _ := w.page("https://" + firstDomain + "/agents/single"); status != http.StatusNotFound {
		w.t.Errorf("an agent of %s is at %s: %d", thirdDomain, firstDomain, status)
	}
	if status, body := w.page("https://mta-sts." + secondDomain + "/.well-known/mta-sts.txt"); status != http.StatusOK || !strings.Contains(body, "mx: "+firstDomain) {
		w.t.Errorf("the policy of %s: %d %s", secondDomain, status, body)
	}
}

// eachHasItsOwn: messages, keys and tokens of one domain are nothing to the other.
func (w *internet) eachHasItsOwn(m *machine) {
	w.t.Helper()
	token := lastLine(m.sh("inbox tokens create --domain " + secondDomain + " --agent helper other"))
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "https://"+firstDomain+"/a2a/helper", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`))
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("A2A-Version", "1.0")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		w.t.Errorf("a token of %s at %s: %d", secondDomain, firstDomain, response.StatusCode)
	}

	m.sh("inbox block add --domain " + thirdDomain + " '*.nobody.example'")
	if said := m.sh("inbox block list"); strings.Contains(said, "nobody") {
		w.t.Errorf("a block of %s holds at %s: %s", thirdDomain, firstDomain, said)
	}
	if said := m.sh("inbox keys rotate --domain " + secondDomain + " --actor helper"); !strings.Contains(said, "inbox."+secondDomain) {
		w.t.Errorf("the key of the helper of %s was not changed by the running server: %s", secondDomain, said)
	}
	if said := m.sh("inbox agents list --domain " + thirdDomain); !strings.Contains(said, "single") || strings.Contains(said, "helper") {
		w.t.Errorf("agents of %s: %s", thirdDomain, said)
	}
	m.sh("inbox pause --all --reason 'new model'")
	for _, domain := range []string{firstDomain, secondDomain, thirdDomain} {
		if said := m.sh("inbox pause --domain " + domain); !strings.Contains(said, "(all)") {
			w.t.Errorf("inbox pause --all left out %s: %s", domain, said)
		}
	}
	m.sh("inbox resume --all")
	if status, body := w.page("https://" + firstDomain + "/readyz"); status != http.StatusOK || !strings.Contains(body, thirdDomain+" queue") {
		w.t.Errorf("/readyz: %d %s", status, body)
	}

	m.fails("inbox agents list --domain unknown.example", "it has agents.example, second.example, third.example")
	m.fails("inbox serve --domain "+thirdDomain, "the server serves all of its domains")

	for _, domain := range []string{secondDomain, thirdDomain} {
		if _, err := os.Stat(filepath.Join(m.directory, "data", "domains", domain)); err != nil {
			w.t.Errorf("%s has no directory of its own: %v", domain, err)
		}
	}
}

// changesByReload adds an agent to a further domain of the running server.
func (w *internet) changesByReload(m *machine) {
	w.t.Helper()
	m.sh("inbox agents add later --kind echo --domain " + thirdDomain)
	if said := m.sh("inbox reload"); !strings.Contains(said, fmt.Sprintf("agents[later@%s]: changed", thirdDomain)) {
		w.t.Errorf("inbox reload says %s", said)
	}
	w.asksByMention("later@" + thirdDomain)
	if status, _ := w.page("https://" + firstDomain + "/agents/later"); status != http.StatusNotFound {
		w.t.Errorf("the new agent of %s is at %s: %d", thirdDomain, firstDomain, status)
	}
}
