package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// TestHostileNames: names that no database takes as text, and others that are none of ours, are refused like those that do
// not exist, on both databases and by each binding; they never become failures of the server.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		w := startWays(t, database, "[[agents]]\nname = \"memory\"\nkind = \"echo\"\n", "")
		token := w.mint("ann")
		for _, name := range []string{"\x00", "a\x00b", "\n", "' OR 1=1 --", "%", "\ufffd", strings.Repeat("x", 5000)} {
			quoted, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			page, _ := json.Marshal(base64.RawURLEncoding.EncodeToString([]byte("1." + name + strings.Repeat("0", max(0, 36-len(name))))))
			for params, method := range map[string]string{
				`{"id":%s}`:                                 "GetTask",
				`{"id":%s,"metadata":{}}`:                   "CancelTask",
				`{"id":%s,"tenant":""}`:                     "SubscribeToTask",
				`{"taskId":%s}`:                             "ListTaskPushNotificationConfigs",
				`{"taskId":%s,"url":"https://x.test"}`:      "CreateTaskPushNotificationConfig",
				`{"contextId":%s}`:                          "ListTasks",
				`{"pageToken":` + string(page) + `,"_":%s}`: "ListTasks",
				`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"taskId":%s}}`:             "SendMessage",
				`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"referenceTaskIds":[%s]}}`: "SendMessage",
			} {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":`+params+`}`, method, quoted)
				if code, answer := w.post("/a2a/memory", token, body); code != 200 || strings.Contains(answer, "-32603") ||
					!strings.Contains(answer, `"error"`) && method != "ListTasks" {
					t.Errorf("%s of %.20q: %d %s", method, name, code, answer)
				}
			}
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
			if _, err := w.grpc.GetTask(ctx, &pb.GetTaskRequest{Id: name}); status.Code(err) != codes.NotFound {
				t.Errorf("GetTask of %.20q by gRPC: %v", name, err)
			}
		}
	})
}
