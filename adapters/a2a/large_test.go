package a2a

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/admission"
	"inbox/internal/await"
	"inbox/internal/webtoken"
	"inbox/normalized"
)

const largeRequest = 32 << 20

func large(options *Options) { options.MaxRequestBytes = largeRequest }

// TestLargeRequests: a file of 20 MiB comes in by every binding, in its own bytes. Under the race detector (-short) it has 9 MiB, which
// is more than strangers may send.
func TestLargeRequests(t *testing.T) {
	size := 20 << 20
	if testing.Short() {
		size = 9 << 20
	}
	content := bytes.Repeat([]byte("twenty mebibytes"), size/16)
	encoded := base64.StdEncoding.EncodeToString(content)
	message := func(id string) string {
		return `{"message":{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"raw":"` + encoded + `","filename":"large.bin"}]}}`
	}
	b := setup(t, large)
	for name, send := range map[string]func(id string) int{
		"JSON-RPC": func(id string) int {
			return b.do("POST", "/a2a/echo", b.ada, `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":`+message(id)+`}`).status
		},
		"HTTP+JSON": func(id string) int {
			return b.do("POST", "/a2a/echo/rest/message:send", b.ada, message(id)).status
		},
		"gRPC": func(id string) int {
			request := grpcMessage(id, "echo")
			request.Message.Parts[0].Content = &pb.Part_Raw{Raw: content}
			if _, err := b.dial().SendMessage(calling(b.ada), request, grpc.MaxCallSendMsgSize(largeRequest), grpc.MaxCallRecvMsgSize(largeRequest)); err != nil {
				t.Error(err)
			}
			return http.StatusOK
		},
	} {
		if got := send(name); got != http.StatusOK {
			t.Errorf("%s: status %d", name, got)
			continue
		}
		turns, err := b.engine.Turns(t.Context(), exchange.TurnFilter{Agent: "echo", MessageID: name, Limit: 1})
		if err != nil || len(turns) != 1 {
			t.Fatalf("%s: %d turns, %v", name, len(turns), err)
		}
		parts := turns[0].Message.Parts
		if len(parts) != 1 || parts[0].BytesRef == nil || parts[0].BytesRef.Digest != normalized.Digest(content) {
			t.Errorf("%s: other bytes arrived: %+v", name, parts)
		}
	}
	await.Until(t, "no bytes of a request count", func() bool { return b.adapter.options.Bodies.Used() == 0 })
}

// selfSigned takes every signed token for that of a peer that vouches for itself.
type selfSigned struct{}

func (selfSigned) Verify(context.Context, webtoken.Presented) (webtoken.Claims, error) {
	return webtoken.Claims{
		Issuer: "https://peer.test", Subject: "@cy@peer.test", Method: identity.MethodA2AJWT, Unscoped: true, Peer: identity.Address{Local: "cy", Domain: "peer.test"},
	}, nil
}

// TestStrangersSendLess: who signs for itself has the smaller limit, by HTTP and by gRPC.
func TestStrangersSendLess(t *testing.T) {
	_, issuer := withIssuer(t)
	b := setup(t, large, func(o *Options) { o.Verifier = selfSigned{} })
	over := strings.Repeat("x", maxBodyBytes)
	if r := b.do("POST", "/a2a/echo", issuer.token(nil), `{"x":"`+over+`"}`); r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d %s", r.status, r.body)
	}
	if r := b.do("POST", "/a2a/echo", b.ada, `{"x":"`+over+`"}`); r.status == http.StatusRequestEntityTooLarge {
		t.Errorf("a caller with a token of the operator: %d %s", r.status, r.body)
	}

	request := grpcMessage("m1", "echo")
	request.Message.Parts[0].Content = &pb.Part_Raw{Raw: []byte(over)}
	client := b.dial()
	if _, err := client.SendMessage(calling(issuer.token(nil)), request); status.Code(err) != grpccodes.ResourceExhausted {
		t.Errorf("gRPC: %v", err)
	}
	if _, err := client.SendMessage(calling(issuer.token(nil)), grpcMessage("m2", "echo")); err != nil {
		t.Errorf("a small message: %v", err)
	}
}

// TestBudgetOfRequestsByGRPC: what is in memory counts, and comes back when a call is over.
func TestBudgetOfRequestsByGRPC(t *testing.T) {
	budget := admission.NewBytes(1<<20, 1<<20)
	b := setup(t, func(o *Options) { o.Bodies = budget })
	client := b.dial()
	request := grpcMessage("m1", "echo")
	request.Message.Parts[0].Content = &pb.Part_Raw{Raw: bytes.Repeat([]byte{'x'}, 1<<19)}
	if !budget.Take(admission.Source{}, true, 1<<19) {
		t.Fatal("the budget is taken")
	}
	if _, err := client.SendMessage(calling(b.ada), request); status.Code(err) != grpccodes.Unavailable {
		t.Errorf("over the budget: %v", err)
	}
	budget.Give(admission.Source{}, 1<<19)
	if _, err := client.SendMessage(calling(b.ada), request); err != nil {
		t.Errorf("within the budget: %v", err)
	}
	await.Until(t, "no bytes of a request count", func() bool { return budget.Used() == 0 })
}

// TestRequestsByGRPCThatDoNotArrive: who opens calls and sends nothing holds up no one with a token of the operator.
func TestRequestsByGRPCThatDoNotArrive(t *testing.T) {
	b := setup(t, func(o *Options) { o.Bodies = admission.NewBytes(maxBodyBytes, maxBodyBytes) })
	connection := b.connect()
	idle, stop := context.WithCancel(calling("none"))
	defer stop()
	for range 8 {
		if _, err := connection.NewStream(idle, &grpc.StreamDesc{ClientStreams: true}, pb.A2AService_SendMessage_FullMethodName); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pb.NewA2AServiceClient(connection).ListTasks(calling(b.ada), &pb.ListTasksRequest{Tenant: "echo"}); err != nil {
		t.Error(err)
	}
}

// TestLargeFilesOfAnAnswer: a file that is too large to be sent has an address, and a result says what it is, to clients of each version.
func TestLargeFilesOfAnAnswer(t *testing.T) {
	b := setup(t, func(o *Options) {
		o.FileURL = func(reply exchange.Reply, part normalized.Part) string {
			return "https://agents.test/media/" + reply.ID + "/" + part.Name
		}
	})
	digest, size, err := b.adapter.options.Blobs.Put(t.Context(), strings.NewReader(strings.Repeat("x", maxSentBytes+1)))
	if err != nil {
		t.Fatal(err)
	}
	b.engine.agent = func(context.Context, *run) normalized.Response {
		return normalized.Response{Parts: []normalized.Part{{
			Kind: normalized.PartArtifact, MIME: "application/pdf", Name: "large.pdf", BytesRef: normalized.Stored(digest), Size: size,
			ArtifactType: "report", ID: "result-1", Description: "a report",
		}}}
	}
	task := b.rpc(b.ada, "SendMessage", message("m1", "hello")).text(t, "result.task.id")
	shown := func(t *testing.T, answer reply, artifact, address string) {
		t.Helper()
		for at, want := range map[string]string{
			".artifactId": "result-1", ".description": "a report", ".metadata.mentionable.artifact_type": "report",
		} {
			if got := answer.text(t, artifact+at); got != want {
				t.Errorf("%s is %q, want %q", at, got, want)
			}
		}
		if got := answer.text(t, artifact+address); !strings.HasPrefix(got, "https://agents.test/media/") || !strings.HasSuffix(got, "/large.pdf") {
			t.Errorf("the file is at %q", got)
		}
	}

	shown(t, b.rpc(b.ada, "GetTask", `{"id":"`+task+`"}`), "result.artifacts.0", ".parts.0.url")
	shown(t, b.rpc(b.ada, "tasks/get", `{"id":"`+task+`"}`), "result.artifacts.0", ".parts.0.file.uri")
	shown(t, b.do("GET", "/a2a/echo/rest/tasks/"+task, b.ada, ""), "artifacts.0", ".parts.0.url")
	got, err := b.dial().GetTask(calling(b.ada), &pb.GetTaskRequest{Tenant: "echo", Id: task})
	if err != nil {
		t.Fatal(err)
	}
	artifact := got.GetArtifacts()[0]
	kind := artifact.GetMetadata().GetFields()["mentionable"].GetStructValue().GetFields()["artifact_type"].GetStringValue()
	if kind != "report" || !strings.HasPrefix(artifact.GetParts()[0].GetUrl(), "https://agents.test/media/") {
		t.Errorf("by gRPC: %v", artifact)
	}
}

// TestFilesThatDefaultClientsRead: a client of gRPC with the usual bound of 4 MiB reads every answer; files over 3 MiB together are addresses
// there, and bytes by the other bindings.
func TestFilesThatDefaultClientsRead(t *testing.T) {
	for name, c := range map[string]struct {
		sizes  []int // of the files, in KiB
		inside int   // files that are in the answer by gRPC
	}{
		"one large":     {[]int{6000}, 0},
		"one small":     {[]int{2000}, 1},
		"together":      {[]int{2000, 2000, 2000}, 1},
		"at the bound":  {[]int{3072}, 1},
		"over the line": {[]int{3073, 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, func(o *Options) {
				o.FileURL = func(reply exchange.Reply, part normalized.Part) string {
					return "https://agents.test/media/" + reply.ID + "/" + part.Name
				}
			})
			var parts []normalized.Part
			for i, size := range c.sizes {
				digest, stored, err := b.adapter.options.Blobs.Put(t.Context(), strings.NewReader(strings.Repeat(string(rune('a'+i)), size<<10)))
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, normalized.Part{Kind: normalized.PartFile, MIME: "application/pdf", Name: "file.pdf", BytesRef: normalized.Stored(digest), Size: stored})
			}
			b.engine.agent = func(context.Context, *run) normalized.Response { return normalized.Response{Parts: parts} }

			sent, err := b.dial().SendMessage(calling(b.ada), grpcMessage("m1", "echo"))
			if err != nil {
				t.Fatal(err)
			}
			count := func(task *pb.Task) (inside, addressed int) {
				for _, artifact := range task.GetArtifacts() {
					for _, part := range artifact.GetParts() {
						if len(part.GetRaw()) > 0 {
							inside++
						} else if strings.HasPrefix(part.GetUrl(), "https://agents.test/media/") {
							addressed++
						}
					}
				}
				return inside, addressed
			}
			check := func(by string, task *pb.Task) {
				if inside, addressed := count(task); inside != c.inside || inside+addressed != len(c.sizes) {
					t.Errorf("%s: %d files inside, %d addresses", by, inside, addressed)
				}
			}
			check("SendMessage", sent.GetTask())
			got, err := b.dial().GetTask(calling(b.ada), &pb.GetTaskRequest{Tenant: "echo", Id: sent.GetTask().GetId()})
			if err != nil {
				t.Fatal(err)
			}
			check("GetTask", got)
			with := true
			list, err := b.dial().ListTasks(calling(b.ada), &pb.ListTasksRequest{Tenant: "echo", IncludeArtifacts: &with})
			if err != nil {
				t.Fatal(err)
			}
			check("ListTasks", list.GetTasks()[0])

			whole := b.rpc(b.ada, "GetTask", `{"id":"`+got.GetId()+`"}`)
			if raw := strings.Count(whole.body, `"raw":"`); raw != len(c.sizes) {
				t.Errorf("JSON-RPC has %d files inside", raw)
			}
		})
	}
}
