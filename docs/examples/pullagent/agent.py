"""An agent behind NAT in twenty lines: it takes turns from the inbox server and answers them."""
import json, os, threading, time, urllib.parse, urllib.request

BASE = os.environ["INBOX_URL"].rstrip("/") + "/v1/pull/" + os.environ["INBOX_AGENT"]

def post(path, body=b""):
    request = urllib.request.Request(BASE + path, body, {"Authorization": "Bearer " + os.environ["INBOX_TOKEN"]})
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.loads(response.read() or "null")

def answer(message):  # your agent: it may take its time
    text = f"Hello *{message['sender']['address']}* from Python!"
    return {"parts": [{"kind": "text", "mime": "text/markdown", "content": text}]}

def beat(path, seconds, done):  # a turn whose program is silent goes to another one
    try:
        while not done.wait(seconds / 3):
            post(path)
    except OSError as problem:  # 410: nobody wants the answer any more
        print(problem, flush=True)

while True:
    try:
        turn = post("/take?wait=30s")
        if turn:
            work, lease = "/" + urllib.parse.quote(turn["turn"]["id"], safe=""), turn["lease"]
            done = threading.Event()
            alive = (work + "/heartbeat?lease=" + lease["id"], lease["seconds"], done)
            threading.Thread(target=beat, args=alive, daemon=True).start()
            try:
                post(work + "/answer?lease=" + lease["id"], json.dumps(answer(turn["message"])).encode())
            finally:
                done.set()
    except OSError as problem:  # no connection, or 409: the lease is over
        print(problem, flush=True)
        time.sleep(1)
