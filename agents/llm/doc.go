// Package llm is the agent that a language model answers for: it builds the prompt from a message, runs the model and
// its tools in the loop of agents/loop, and streams the answer. It holds two codecs, OpenAI-compatible chat
// completions and Anthropic messages, behind one small interface (Provider).
//
// It contains no tool and stores nothing: tools, stored files and parked runs are interfaces that the caller fills. It
// knows two wire formats and no vendor's library.
package llm
