#!/usr/bin/env python3
"""A tool server for inbox, without any library: it keeps notes in the file that its argument names.

Messages are JSON, one a line. Only they may go to standard output; complaints go to standard error.
"""
import json
import sys

TOOLS = [
    {"name": "add_note", "description": "Writes a note down.",
     "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
    {"name": "list_notes", "description": "Gives all notes, the oldest first.",
     "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]


def notes():
    try:
        with open(sys.argv[1]) as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        return []


def call(name, arguments, key):
    if name == "add_note":
        if not key or all(note["key"] != key for note in notes()):  # a call that comes again is the same note
            with open(sys.argv[1], "a") as file:
                file.write(json.dumps({"key": key, "text": arguments["text"]}) + "\n")
        return "Noted."
    return "\n".join(note["text"] for note in notes()) or "There are no notes."


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            key = params.get("_meta", {}).get("inbox/idempotency_key")
            text, failed = call(params["name"], params.get("arguments", {}), key), False
        except Exception as problem:  # the model reads it and can try something else
            text, failed = f"{type(problem).__name__}: {problem}", True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue  # an announcement; nobody waits for an answer
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    result = answer(request["method"], request.get("params", {}))
    if result is None:
        reply["error"] = {"code": -32601, "message": "there is no such method here"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
