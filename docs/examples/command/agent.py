#!/usr/bin/env python3
"""An agent as a local program: it reads one message and answers it."""
import json, sys

message = json.load(sys.stdin)["message"]
sender = message["sender"]["address"]
words = sum(len(part["content"].split()) for part in message["parts"] if part["kind"] == "text")
if words > 100_000:
    print(f"too long: {words} words", file=sys.stderr)  # goes to the operator's log
    sys.exit(1)
text = {"kind": "text", "mime": "text/markdown", "content": f"Hello *{sender}*, you wrote {words} words."}
json.dump({"parts": [text]}, sys.stdout)
