package envelope

import (
	"time"

	"inbox/agents/runtime/value"
)

// ValidateFramework checks a message by the framework's own rules: a known type, content that fits it, an agent key in
// the execution trace, an ISO 8601 timestamp if there is one. The error is of type *Error with code CodeFramework and
// the path of the first failing member.
func ValidateFramework(given any) error {
	message, is := given.(map[string]any)
	if !is {
		return odd("message", "must be an object")
	}
	kind := FrameworkType(value.Text(message["type"]))
	if !kind.Known() {
		return odd("type", "is not known")
	}
	if err := fitting(kind, message); err != nil {
		return err
	}
	if key, there := message["agent_key"]; there || ExecutionTrace.Has(kind) {
		if _, is := value.NonBlank(key); !is {
			return odd("agent_key", "must be a non-empty string")
		}
	}
	if stamp, there := message["timestamp"]; there && !validTimestamp(value.Text(stamp)) {
		return odd("timestamp", "must be an ISO 8601 time")
	}
	if metadata, there := message["metadata"]; there {
		if _, is := value.Object(metadata); !is {
			return odd("metadata", "must be an object")
		}
	}
	return nil
}

func fitting(kind FrameworkType, message map[string]any) error {
	content := message["content"]
	object := value.Assoc(content)
	switch {
	case kind == Action:
		return call(message)
	case content == nil:
		return odd("content", "is required")
	case kind == Failure:
		return needText(object, "content.", "error_message")
	case kind == Final:
		return needText(object, "content.", "operation")
	case kind == StrategicPlan:
		if _, is := object["plan"].(map[string]any); !is {
			return odd("content.plan", "must be an object")
		}
	case kind == SuggestedPlan:
		if _, is := value.List(object["steps"]); !is {
			return odd("content.steps", "must be a list")
		}
	case kind != Observation:
		if _, is := content.(string); !is && !value.Container(content) {
			return odd("content", "must be a string, a list or an object")
		}
	}
	return nil
}

func call(message map[string]any) error {
	if err := needText(message, "", "tool"); err != nil {
		return err
	}
	if _, is := value.Object(message["args"]); !is {
		return odd("args", "must be an object")
	}
	return nil
}

func needText(object map[string]any, path, name string) error {
	if _, is := value.NonBlank(object[name]); !is {
		return odd(path+name, "must be a non-empty string")
	}
	return nil
}

// timestamps are the forms of ISO 8601 that messages use; fractions of a second are read without being named.
var timestamps = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05-0700", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05-07",
	"2006-01-02T15:04Z07:00", "2006-01-02T15:04", "20060102T150405Z0700", "20060102T150405", "2006-01-02",
}

func validTimestamp(stamp string) bool {
	for _, layout := range timestamps {
		if _, err := time.Parse(layout, stamp); err == nil {
			return true
		}
	}
	return false
}
