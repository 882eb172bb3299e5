package activitypub

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"

	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/internal/golden"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// The tests of this file bring what each kind of server sends, in its recorded shape, to the whole adapter: byte by
// byte as it stands in testdata/<software>, signed the way that software signs, under https names and without the
// switch for development. Only the network is in memory.

// recordedServer is testdata/<software>/server.json.
type recordedServer struct {
	Software string `json:"software"`
	Version  string `json:"version"`
	Actor    string `json:"actor"`   // who acts where a case does not say so
	Address  string `json:"address"` // @user@domain as WebFinger should confirm it
	// Signature is the header with @SIGNATURE@ (and @CREATED@) for what is computed; SignatureInput is there with RFC 9421.
	Signature      string            `json:"signature"`
	SignatureInput string            `json:"signature_input"`
	Headers        map[string]string `json:"headers"`
	Documents      map[string]string `json:"documents"` // address → file
	Secure         map[string]string `json:"secure"`    // the same, for documents that an unsigned GET does not get
	WebFinger      map[string]string `json:"webfinger"` // resource → file
	Cases          []recordedCase    `json:"cases"`
}

// recordedCase is one activity: <name>.json, and what came of it in <name>.golden.json.
type recordedCase struct {
	Name           string   `json:"name"`
	After          []string `json:"after"` // cases that arrived before
	Inbox          string   `json:"inbox"` // empty = /inbox
	Signature      string   `json:"signature"`
	SignatureInput string   `json:"signature_input"`
}

var recordedNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// recordedReply is the note of ours that recorded activities like, share, report and answer.
const recordedReply = "0193f3c0-0000-7000-8000-000000000001"

// proofKey is the second key of every recorded actor, for object integrity proofs.
var proofKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

func TestRecordedSoftware(t *testing.T) {
	files, err := filepath.Glob("testdata/*/server.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d kinds of servers in testdata (%v), want at least 10", len(files), err)
	}
	for _, file := range files {
		directory := filepath.Dir(file)
		t.Run(filepath.Base(directory), func(t *testing.T) {
			server := readRecordedServer(t, directory)
			for _, one := range server.Cases {
				t.Run(one.Name, func(t *testing.T) { server.run(t, directory, one) })
			}
			checkAllRecorded(t, directory, server)
		})
	}
}

func readRecordedServer(t *testing.T, directory string) *recordedServer {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(directory, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	server := new(recordedServer)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(server); err != nil {
		t.Fatalf("%s: %v", directory, err)
	}
	return server
}

// checkAllRecorded finds files that no case uses: a shape that is written down and never tried would look tested.
func checkAllRecorded(t *testing.T, directory string, server *recordedServer) {
	t.Helper()
	used := map[string]bool{"server.json": true, "README.md": true}
	for _, documents := range []map[string]string{server.Documents, server.Secure, server.WebFinger} {
		for _, name := range documents {
			used[name] = true
		}
	}
	for _, one := range server.Cases {
		used[one.Name+".json"], used[one.Name+".golden.json"] = true, true
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !used[entry.Name()] {
			t.Errorf("%s is used by no case of server.json", entry.Name())
		}
	}
	if _, err := os.Stat(filepath.Join(directory, "README.md")); err != nil {
		t.Errorf("no source is named: %v", err)
	}
}

func (s *recordedServer) run(t *testing.T, directory string, one recordedCase) {
	network := &recordedNetwork{t: t, server: s, directory: directory}
	r := newRig(t, func(o *Options) {
		o.Domain, o.PublicURL, o.AllowPrivate = "inbox.example", "https://inbox.example", false
		o.Client, o.Now = network, func() time.Time { return recordedNow }
		o.Directory = exchangetest.Agents{recordedAgent("echo"), recordedAgent("other")}
	})
	r.engine.replies[recordedReply] = exchange.Reply{ID: recordedReply, Agent: "echo", TurnID: "turn", CreatedAt: recordedNow, Message: normalized.Message{
		ReceivedVia: normalized.ViaActivityPub, ThreadID: "https://inbox.example/threads/1",
	}}
	for _, before := range one.After {
		earlier := s.find(t, before)
		if status := s.deliver(r, directory, earlier); status != http.StatusAccepted {
			t.Fatalf("%s was answered %d before", before, status)
		}
		network.work(r)
	}
	before := r.engine.All()
	network.requests = nil
	status := s.deliver(r, directory, one)
	if status != http.StatusAccepted {
		t.Errorf("answered %d: this server could not talk to us", status)
	}
	result := recordedResult{Status: status, Requests: network.requests}
	for i, in := range r.engine.All() {
		switch {
		case i >= len(before):
			result.Messages = append(result.Messages, recordedMessageOf(in))
		case !cmp.Equal(in.Message.Parts, before[i].Message.Parts):
			result.Edited = append(result.Edited, recordedEdit{in.Message.ID, in.Message.Parts})
		}
	}
	result.Removed, result.Cancelled, result.Reactions = r.engine.removed, r.engine.cancelled, r.engine.reactions
	network.requests = nil
	result.Afterwards = network.work(r)
	for _, record := range r.engine.audit {
		result.Audit = append(result.Audit, record)
	}
	result.Followers, result.Blocks = r.actorsIn(FollowerNamespace+"echo"), r.actorsIn(blockNamespace+"echo")
	result.compare(t, filepath.Join(directory, one.Name+".golden.json"))
	if len(result.Messages) > 0 && s.Address != "" {
		s.checkAddress(r)
	}
}

// actorsIn lists whom the adapter remembers in a namespace.
func (r *rig) actorsIn(namespace string) []string {
	actors, _, err := r.state.List(r.t.Context(), namespace, "", 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return actors
}

func recordedAgent(name string) exchange.AgentProfile {
	return exchange.AgentProfile{Name: name, Address: "@" + name + "@inbox.example", DisplayName: name, CreatedAt: recordedNow.AddDate(0, -1, 0)}
}

func (s *recordedServer) find(t *testing.T, name string) recordedCase {
	t.Helper()
	place := slices.IndexFunc(s.Cases, func(one recordedCase) bool { return one.Name == name })
	if place < 0 {
		t.Fatalf("no case %q", name)
	}
	return s.Cases[place]
}

// checkAddress demands that the WebFinger loop ended as it would at that software's server.
func (s *recordedServer) checkAddress(r *rig) {
	r.t.Helper()
	value, _, _ := r.state.Get(r.t.Context(), addressNamespace, s.Actor)
	var checked checkedAddress
	if err := json.Unmarshal(value, &checked); err != nil || checked.Address != s.Address || checked.Status != addressConfirmed {
		r.t.Errorf("address %s (%v), want %s confirmed", value, err, s.Address)
	}
}

// deliver signs and sends the activity of a case over a real connection.
func (s *recordedServer) deliver(r *rig, directory string, one recordedCase) int {
	r.t.Helper()
	body := s.read(r.t, filepath.Join(directory, one.Name+".json"))
	body = withProof(r.t, body)
	if one.Signature == "" {
		one.Signature, one.SignatureInput = s.Signature, s.SignatureInput
	}
	path := one.Inbox
	if path == "" {
		path = "/inbox"
	}
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.base+path, bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Host = "inbox.example"
	for name, value := range s.Headers {
		request.Header.Set(name, value)
	}
	if one.SignatureInput != "" {
		signRecordedMessage(request, body, one)
	} else {
		signRecordedDraft(request, body, one)
	}
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	reason, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusAccepted {
		r.t.Logf("%s: %d %s", one.Name, response.StatusCode, reason)
	}
	return response.StatusCode
}

var coveredHeaders = regexp.MustCompile(`headers="([^"]*)"`)

// signRecordedDraft is written from draft-cavage-http-signatures-12, apart from the code under test.
func signRecordedDraft(request *http.Request, body []byte, one recordedCase) {
	request.Header.Set("Date", recordedNow.Format(http.TimeFormat))
	request.Header.Set("Digest", digestOf(body))
	var lines []string
	for name := range strings.FieldsSeq(coveredHeaders.FindStringSubmatch(one.Signature)[1]) {
		value := request.Header.Get(name)
		switch name {
		case "(request-target)":
			value = "post " + request.URL.RequestURI()
		case "(created)":
			value = fmt.Sprint(recordedNow.Unix())
		case "host":
			value = request.Host
		case "content-length":
			value = fmt.Sprint(len(body))
		}
		lines = append(lines, name+": "+value)
	}
	request.Header.Set("Signature", fillSignature(one.Signature, strings.Join(lines, "\n")))
}

// signRecordedMessage is written from RFC 9421, apart from the code under test.
func signRecordedMessage(request *http.Request, body []byte, one recordedCase) {
	sum := sha256.Sum256(body)
	request.Header.Set("Date", recordedNow.Format(http.TimeFormat))
	request.Header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
	input := strings.ReplaceAll(one.SignatureInput, "@CREATED@", fmt.Sprint(recordedNow.Unix()))
	_, parameters, _ := strings.Cut(input, "=")
	components, _, _ := strings.Cut(strings.TrimPrefix(parameters, "("), ")")
	var lines []string
	for quoted := range strings.FieldsSeq(components) {
		name := strings.Trim(quoted, `"`)
		value := request.Header.Get(name)
		switch name {
		case "@method":
			value = request.Method
		case "@target-uri":
			value = "https://inbox.example" + request.URL.RequestURI()
		case "@authority", "host":
			value = request.Host
		}
		lines = append(lines, quoted+": "+value)
	}
	lines = append(lines, `"@signature-params": `+parameters)
	request.Header.Set("Signature-Input", input)
	request.Header.Set("Signature", fillSignature(one.Signature, strings.Join(lines, "\n")))
}

func fillSignature(header, text string) string {
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, aliceKey(), crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	header = strings.ReplaceAll(header, "@CREATED@", fmt.Sprint(recordedNow.Unix()))
	return strings.ReplaceAll(header, "@SIGNATURE@", base64.StdEncoding.EncodeToString(signature))
}

// read returns a recorded file with the keys of this run in their places.
func (s *recordedServer) read(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pem, _ := json.Marshal(publicPEM(aliceKey()))
	multikey, _ := json.Marshal("z" + base58Text(append([]byte{0xed, 0x01}, proofKey.Public().(ed25519.PublicKey)...)))
	text = bytes.ReplaceAll(text, []byte(`"@PUBLIC_KEY_PEM@"`), pem)
	return bytes.ReplaceAll(text, []byte(`"@MULTIKEY@"`), multikey)
}

// withProof completes a proof of eddsa-jcs-2022 (FEP-8b32) where a recorded activity has one.
func withProof(t testing.TB, body []byte) []byte {
	t.Helper()
	if !bytes.Contains(body, []byte(`"@PROOF@"`)) {
		return body
	}
	var whole map[string]json.RawMessage
	var options map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(body, &whole), json.Unmarshal(whole["proof"], &options)); err != nil {
		t.Fatal(err)
	}
	delete(whole, "proof")
	delete(options, "proofValue")
	signed := slices.Concat(canonicalSum(t, options), canonicalSum(t, whole))
	value := "z" + base58Text(ed25519.Sign(proofKey, signed))
	return bytes.ReplaceAll(body, []byte(`"@PROOF@"`), []byte(`"`+value+`"`))
}

func canonicalSum(t testing.TB, members any) []byte {
	t.Helper()
	text, err := json.Marshal(members)
	if err == nil {
		text, err = jcs.Transform(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return sum[:]
}

// bitcoinDigits are those of base58btc.
const bitcoinDigits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

func base58Text(raw []byte) string {
	number, rest, digits := new(big.Int).SetBytes(raw), new(big.Int), []byte{}
	for number.Sign() > 0 {
		number.DivMod(number, big.NewInt(58), rest)
		digits = append(digits, bitcoinDigits[rest.Int64()])
	}
	for _, b := range raw {
		if b != 0 {
			break
		}
		digits = append(digits, bitcoinDigits[0])
	}
	slices.Reverse(digits)
	return string(digits)
}

// base58Bytes reads what base58Text writes.
func base58Bytes(text string) []byte {
	number, zeros := new(big.Int), 0
	for _, digit := range []byte(text) {
		number.Mul(number, big.NewInt(58)).Add(number, big.NewInt(int64(strings.IndexByte(bitcoinDigits, digit))))
		if number.Sign() == 0 {
			zeros++
		}
	}
	return append(make([]byte, zeros), number.Bytes()...)
}

// recordedNetwork is the software's server as far as our requests reach it.
type recordedNetwork struct {
	t         *testing.T
	server    *recordedServer
	directory string
	requests  []string
}

func (n *recordedNetwork) CheckURL(u *url.URL) error {
	if u.Scheme != "https" {
		return safehttp.ErrRefused
	}
	return nil
}

func (n *recordedNetwork) Get(ctx context.Context, address string, options safehttp.GetOptions) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", options.Accept)
	if options.Sign != nil {
		if err := options.Sign(request); err != nil {
			return nil, err
		}
	}
	signed := ""
	if request.Header.Get("Signature") != "" {
		signed = " signed"
	}
	n.requests = append(n.requests, "GET "+address+signed)
	return n.answer(request), nil
}

// answer finds the document. Everything else is not found.
func (n *recordedNetwork) answer(request *http.Request) *http.Response {
	address := request.URL.String()
	if request.URL.Path == "/.well-known/webfinger" {
		return n.file(request, n.server.WebFinger[request.URL.Query().Get("resource")], "application/jrd+json; charset=utf-8")
	}
	if name, secure := n.server.Secure[address]; secure {
		if request.Header.Get("Signature") == "" || request.Header.Get("Date") == "" {
			return n.respond(request, http.StatusUnauthorized, "", nil)
		}
		return n.file(request, name, "application/activity+json; charset=utf-8")
	}
	return n.file(request, n.server.Documents[address], `application/activity+json; charset=utf-8`)
}

func (n *recordedNetwork) file(request *http.Request, name, media string) *http.Response {
	if name == "" {
		return n.respond(request, http.StatusNotFound, "", nil)
	}
	if name == "410" {
		return n.respond(request, http.StatusGone, "", nil)
	}
	return n.respond(request, http.StatusOK, media, n.server.read(n.t, filepath.Join(n.directory, name)))
}

func (n *recordedNetwork) respond(request *http.Request, status int, media string, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{"Content-Type": {media}}, Request: request,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// Do takes what we post.
func (n *recordedNetwork) Do(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	var activity struct{ Type string }
	if err := json.Unmarshal(body, &activity); err != nil {
		return nil, err
	}
	n.requests = append(n.requests, "POST "+request.URL.String()+" "+activity.Type)
	return n.respond(request, http.StatusAccepted, "", nil), nil
}

// work does the later jobs and returns the requests that they made.
func (n *recordedNetwork) work(r *rig) []string {
	n.requests = nil
	r.engine.mu.Lock()
	jobs := r.engine.jobs
	r.engine.jobs = nil
	r.engine.mu.Unlock()
	for _, payload := range jobs {
		if err := r.adapter.SendActivity(r.t.Context(), payload); err != nil {
			n.t.Errorf("job %s: %v", payload, err)
		}
	}
	return n.requests
}

// recordedMessage is what the engine gets of an activity.
type recordedMessage struct {
	Message   any             `json:"message"`
	Route     json.RawMessage `json:"route"`
	NoReply   string          `json:"no_reply,omitempty"`
	FromAgent bool            `json:"from_agent,omitempty"`
}

func recordedMessageOf(in exchange.Inbound) recordedMessage {
	return recordedMessage{Message: in.Message, Route: in.Route, NoReply: in.NoReply, FromAgent: in.FromAgent}
}

// recordedEdit is a message as it reads after an edit.
type recordedEdit struct {
	Message string            `json:"message"`
	Parts   []normalized.Part `json:"parts"`
}

// recordedResult is the golden file of a case.
type recordedResult struct {
	Status     int               `json:"status"`
	Requests   []string          `json:"requests,omitempty"` // before the answer
	Messages   []recordedMessage `json:"messages,omitempty"`
	Edited     []recordedEdit    `json:"edited,omitempty"`
	Removed    []string          `json:"removed,omitempty"`   // agent, message and principal
	Cancelled  []string          `json:"cancelled,omitempty"` // agent and principal
	Reactions  []string          `json:"reactions,omitempty"`
	Audit      []any             `json:"audit,omitempty"`
	Followers  []string          `json:"followers,omitempty"`  // of the agent, at the end
	Blocks     []string          `json:"blocks,omitempty"`     // of the agent, at the end
	Afterwards []string          `json:"afterwards,omitempty"` // requests of later jobs
}

func (result recordedResult) compare(t *testing.T, path string) {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(result); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, strings.TrimPrefix(path, "testdata/"), text.Bytes())
}
