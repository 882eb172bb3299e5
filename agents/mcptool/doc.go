// Package mcptool gives agents the tools of MCP servers: local programs that speak over their standard input and
// output, and services that speak streamable HTTP. It starts the servers, keeps connections to them, lists their tools
// as declarations of agents/runtime/tool and runs calls.
//
// It decides nothing about a person and shows no tool to a model: visibility, approval and at-most-once are the work of
// agents/runtime/tool and the engine, which read what the declarations say. It never repeats a call by itself. It answers no
// request of a server: no sampling, no elicitation, no roots.
package mcptool
