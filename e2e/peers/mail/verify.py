"""Checks the DKIM signature of a mail with dkimpy, without asking any name server.

usage: verify.py RECORDS < mail     RECORDS is {"items": [{"name", "type", "value"}]}, as `inbox dns --json` prints it

Prints one JSON object {"verified", "domain", "selector", "headers"} and ends with 0 when the signature is good.
"""
import json
import sys

import dkim


def records(path):
    with open(path, encoding="utf-8") as file:
        return {
            entry["name"].rstrip(".").lower(): entry["value"].encode()
            for entry in json.load(file)["items"]
            if entry["type"] == "TXT"
        }


def main():
    published = records(sys.argv[1])

    def lookup(name, timeout=5):
        return published.get(name.decode().rstrip(".").lower())

    verifier = dkim.DKIM(sys.stdin.buffer.read(), minkey=2048)
    try:
        verified = verifier.verify(dnsfunc=lookup)
    except dkim.DKIMException as problem:
        print(json.dumps({"verified": False, "problem": str(problem)}))
        return 1
    print(json.dumps({
        "verified": verified,
        "domain": (verifier.domain or b"").decode(),
        "selector": (verifier.selector or b"").decode(),
        "headers": [name.decode().lower() for name in verifier.include_headers or []],
    }))
    return 0 if verified else 1


sys.exit(main())
