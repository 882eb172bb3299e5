// Package tool is everything about tools but the tools: what a declaration may say, which tools a model sees and under
// which names, how a call is prepared from what the model wrote and what the caller knows, how it is executed and its
// result brought into one form, what may be recorded of it, and who must approve it (agent runtime contract, section 4).
//
// It contains no loop, no provider, no concrete tool and no durable storage. It decides nothing about a person: whom
// to believe is asked through ActionOptions.Permits.
//
// Values are those of encoding/json with UseNumber: map[string]any, []any, json.Number, string, bool and nil. Functions
// do not change the values that they are given.
package tool
