package operator

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/blob"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/normalized"
)

const (
	annMail = "inbox.test mailto:ann@a.test"
	annWork = "inbox.test mailto:ann@work.test"
)

// linkedPerson is a store in which Ann has linked two addresses for the agent memory, and writes to the agent shop as well.
func linkedPerson(t *testing.T) (rows *store.Store, toMemory, workToMemory, workToShop, linkID string) {
	t.Helper()
	rows = openStore(t)
	toMemory = sayTo(t, rows, "memory", annMail, "@ann@a.test")
	workToMemory = sayTo(t, rows, "memory", annWork, "@ann@work.test")
	workToShop = sayTo(t, rows, "shop", annWork, "@ann@work.test")
	linkID = uuid.Must(uuid.NewV7()).String()
	link := exchange.PersonLink{ID: linkID, Agent: "memory", Digest: "shown", Sides: [2]exchange.LinkSide{
		{Principal: annMail, Issuer: "inbox.test", Address: "@ann@a.test"}, {Principal: annWork, Issuer: "inbox.test", Address: "@ann@work.test"},
	}}
	if err := rows.InTx(t.Context(), func(tx *store.Tx) error { return tx.PutLink(t.Context(), link) }); err != nil {
		t.Fatal(err)
	}
	return rows, toMemory, workToMemory, workToShop, linkID
}

// sayTo stores a message; a principal that begins with "unverified " has no evidence.
// The route is optional.
func sayTo(t *testing.T, rows *store.Store, agent, principal, address string, route ...byte) string {
	t.Helper()
	turn := exchange.TurnRecord{
		ID: uuid.Must(uuid.NewV7()).String(), Agent: agent, Principal: principal, ThreadID: "c-" + uuid.NewString(), State: exchange.StateAnswered, Channel: normalized.ViaEmail,
		AcceptedAt: time.Now(), Route: route, Message: normalized.Message{
			ID: uuid.NewString(), ReceivedVia: normalized.ViaEmail, ReceivedAt: identity.Now(), Sender: normalized.Sender{Address: identity.Stated(address)},
			Parts: []normalized.Part{normalized.Text("hello")},
		},
	}
	if issuer, subject, _ := strings.Cut(principal, " "); !strings.HasPrefix(principal, normalized.Unproven) {
		turn.Message.Sender.Identities = []identity.Evidence{{Issuer: issuer, Subject: subject, Method: identity.MethodEmailDMARC}}
	}
	if err := rows.InTx(t.Context(), func(tx *store.Tx) error {
		_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return turn.ID
}

func erasuresOf(rows *store.Store) Erasures {
	return Erasures{store: rows, domain: "inbox.test", current: func() *config.Config { return &config.Config{Domain: "inbox.test"} }}
}

// exportZip writes an export of one domain into an archive.
func exportZip(t *testing.T, exports Exports, who PersonName, out io.Writer) (Exported, error) {
	t.Helper()
	archive := zip.NewWriter(out)
	made, err := exports.Export(t.Context(), who, archive)
	return made, errors.Join(err, archive.Close())
}

// TestExportOfLinkedAddressesIsForTheAgentOfTheLink: both sides agreed for one agent. What a linked address said to another agent is not exported,
// whether the person or the link is named.
func TestExportOfLinkedAddressesIsForTheAgentOfTheLink(t *testing.T) {
	rows, toMemory, workToMemory, workToShop, linkID := linkedPerson(t)
	exports := Exports{store: rows, people: erasuresOf(rows)}

	for _, c := range []struct {
		who  PersonName
		want []string
	}{
		{PersonName{Name: "ann@a.test"}, []string{toMemory}},
		{PersonName{Name: "ann@a.test", Linked: true}, []string{toMemory, workToMemory}},
		{PersonName{Name: linkID}, []string{toMemory, workToMemory}},
		{PersonName{Name: "ann@work.test"}, []string{workToMemory, workToShop}},
	} {
		var out bytes.Buffer
		if _, err := exportZip(t, exports, c.who, &out); err != nil {
			t.Fatal(err)
		}
		archive, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, file := range archive.File {
			if id, is := strings.CutPrefix(file.Name, "messages/"); is {
				got = append(got, strings.TrimSuffix(id, ".json"))
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("export of %+v (-want +got):\n%s", c.who, diff)
		}
		preview, err := erasuresOf(rows).Preview(t.Context(), c.who)
		if err != nil || preview.Messages != len(c.want) {
			t.Errorf("preview of %+v: %d messages, %v; want %d", c.who, preview.Messages, err, len(c.want))
		}
	}
}

// TestRepeatedErasureKeepsToTheAgentOfTheLink: a restore does an erasure again by the hashes of its receipt; of a linked address it takes only what it
// said to the agent of the link.
func TestRepeatedErasureKeepsToTheAgentOfTheLink(t *testing.T) {
	rows, _, _, _, _ := linkedPerson(t)
	person, err := erasuresOf(rows).Who(t.Context(), PersonName{Name: "ann@a.test", Linked: true})
	if err != nil {
		t.Fatal(err)
	}
	hash := hashWith([]byte("key"))
	names := map[string]store.PersonNames{}
	if err := (KnownErasures{rows, "inbox.test"}).findHashed(t.Context(), []Receipt{{ID: "r", Identifiers: identifiers(person.Names, hash)}}, hash, names); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]store.LinkedName{{Principal: annWork, Agent: "memory"}}, names["r"].Linked); diff != "" || slices.Contains(names["r"].Principals, annWork) {
		t.Errorf("found %+v (-want +got):\n%s", names["r"], diff)
	}
}

// TestNothingProvenSaysWhoStatesTheAddress: the error of an export without messages names the principal that has them, and offers --unproven only
// for messages that it would take.
func TestNothingProvenSaysWhoStatesTheAddress(t *testing.T) {
	rows := openStore(t)
	sayTo(t, rows, "echo", "inbox.test https://social.test/eve", "@ann@a.test")
	sayTo(t, rows, "echo", "unverified @Bob@b.test", "@Bob@b.test")
	sayTo(t, rows, "echo", "unverified @cat@c.test", "@cat@c.test")
	exports := Exports{store: rows, people: erasuresOf(rows)}

	for name, want := range map[string]string{
		"ann@a.test": `nothing is kept of "ann@a.test"; inbox.test https://social.test/eve is proven to be another sender, and states @ann@a.test`,
		"bob@b.test": `nothing is kept of "bob@b.test"; unverified @Bob@b.test states @Bob@b.test, which is another address: capital letters count`,
		"cat@c.test": `messages of unverified @cat@c.test only state the address: name that principal to export them, or write --unproven`,
	} {
		_, err := exportZip(t, exports, PersonName{Name: name}, new(bytes.Buffer))
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", name, err, want)
		}
	}
	if _, err := exportZip(t, exports, PersonName{Name: "bob@b.test", Unproven: true}, new(bytes.Buffer)); !fault.Is(err, fault.NotFound) {
		t.Errorf("--unproven takes an address in other letters: %v", err)
	}
}

// TestExportHasWhatTheSenderBrought: what a client said was said before its message is in the export, with its files.
func TestExportHasWhatTheSenderBrought(t *testing.T) {
	rows := openStore(t)
	files, err := blob.OpenFiles(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := files.PutBytes(t.Context(), []byte("a picture"))
	if err != nil {
		t.Fatal(err)
	}
	route, err := json.Marshal(map[string]any{exchange.RouteHistory: []exchange.Earlier{{Role: normalized.RoleUser, Parts: []normalized.Part{
		normalized.Text("look at this"), {Kind: normalized.PartFile, MIME: "image/png", Name: "pear.png", BytesRef: normalized.Stored(digest)},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	sayTo(t, rows, "echo", annMail, "@ann@a.test", route...)

	var out bytes.Buffer
	exports := Exports{store: rows, people: erasuresOf(rows), files: func() (exchange.Files, error) { return files, nil }}
	made, err := exportZip(t, exports, PersonName{Name: "ann@a.test"}, &out)
	if err != nil || made.Files != 1 || made.Messages != 1 {
		t.Fatalf("%+v, %v", made, err)
	}
	archive, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range archive.File {
		opened, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(opened)
		if err != nil {
			t.Fatal(err)
		}
		found["words"] = found["words"] || strings.HasPrefix(file.Name, "messages/") && bytes.Contains(content, []byte("look at this"))
		found["picture"] = found["picture"] || file.Name == "files/"+digest+".png" && string(content) == "a picture"
	}
	if !found["words"] || !found["picture"] {
		t.Errorf("found %v", found)
	}
}
