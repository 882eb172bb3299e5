package a2a

import (
	"context"
	"testing"

	"inbox/normalized"
)

// TestReasonOfAFailure: the message of a failed status names the code of the reason, in a stream, too.
func TestReasonOfAFailure(t *testing.T) {
	for code, retryable := range map[string]bool{normalized.FailedUnreachable: true, normalized.FailedInvalidAnswer: false, "own:code": false} {
		t.Run(code, func(t *testing.T) {
			b := setup(t)
			b.engine.agent = func(context.Context, *run) normalized.Response {
				return normalized.Response{Status: normalized.StatusFailed, Error: &normalized.ResponseError{Code: code, Message: "Sorry."}}
			}
			const at = "status.message.metadata.mentionable.error."
			got := b.rpc(b.ada, "SendMessage", message("m1", "hello"))
			if got.at(t, "result.task."+at+"code") != code || got.at(t, "result.task."+at+"retryable") != retryable {
				t.Errorf("task: %s", got.body)
			}
			frames := b.rpc(b.ada, "SendStreamingMessage", message("m2", "hello")).frames()
			last := frames[len(frames)-1]
			if last.at(t, "result.statusUpdate."+at+"code") != code || last.at(t, "result.statusUpdate."+at+"retryable") != retryable {
				t.Errorf("stream: %s", last.body)
			}
		})
	}
}

// TestAnswerThatIsCut: task, artifact and the last event of a stream say that the model did not finish. Nothing says so of a whole answer.
func TestAnswerThatIsCut(t *testing.T) {
	b := setup(t)
	metadata := map[string]string{normalized.MetadataStop: normalized.StopLength}
	b.engine.agent = func(context.Context, *run) normalized.Response {
		return normalized.Response{Parts: []normalized.Part{normalized.Text("Once upon a"), normalized.Text(normalized.Cut)}, Metadata: metadata}
	}
	const at = "metadata.mentionable.stop"
	task := b.rpc(b.ada, "SendMessage", message("m1", "hello"))
	if task.at(t, "result.task."+at) != "length" || task.at(t, "result.task.artifacts.0."+at) != "length" || task.text(t, "result.task.artifacts.0.parts.1.text") != normalized.Cut {
		t.Errorf("task: %s", task.body)
	}
	frames := b.rpc(b.ada, "SendStreamingMessage", message("m2", "hello")).frames()
	if last := frames[len(frames)-1]; last.at(t, "result.statusUpdate."+at) != "length" {
		t.Errorf("stream: %s", last.body)
	}

	metadata = map[string]string{normalized.MetadataStop: "end"}
	if whole := b.rpc(b.ada, "SendMessage", message("m3", "hello")); whole.at(t, "result.task.metadata") != nil {
		t.Errorf("a whole answer: %s", whole.body)
	}
}
