"""An agent in twenty lines: it checks that a message comes from the inbox server and answers it."""
import hashlib, hmac, json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["INBOX_SECRET"].encode()

class Agent(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        signature = "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
        given = self.headers.get("X-Inbox-Signature", "").split(",")
        if not SECRET or not any(hmac.compare_digest(signature.encode(), one.strip().encode()) for one in given):
            return self.send_error(401, "wrong signature")
        sender = json.loads(body)["message"]["sender"]["address"]
        text = {"kind": "text", "mime": "text/markdown", "content": f"Hello *{sender}* from Python!"}
        answer = json.dumps({"parts": [text]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

host, _, port = os.environ.get("LISTEN", "127.0.0.1:9000").rpartition(":")
server = ThreadingHTTPServer((host, int(port)), Agent)
print("listening on", "%s:%d" % server.server_address, flush=True)
server.serve_forever()
