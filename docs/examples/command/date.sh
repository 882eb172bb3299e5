#!/bin/sh
# An agent with output = "text": what it prints is the answer.
cat >/dev/null
date -u "+It is %H:%M UTC."
