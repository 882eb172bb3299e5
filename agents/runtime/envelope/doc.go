// Package envelope keeps the typed message envelope of the agent runtime: JSON values, reading rows of every age into
// the one canonical form, builders, the projection for model providers, pairs of tool calls and results, the result of
// a conversation, and the older agent framework's messages with their way in and out (agent runtime contract, sections
// 1, 2 and 8). It runs no loop and calls no tool, and it knows no protocol and no store.
package envelope
