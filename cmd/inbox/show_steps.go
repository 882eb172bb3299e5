package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"inbox/exchange"
)

// printSpent says what the agent's steps took together.
func printSpent(out io.Writer, spent *exchange.Spent) {
	if spent == nil {
		return
	}
	fmt.Fprintf(out, "Spent     %s, %s, %s\n", counted(spent.ModelCalls, "model call"), counted(spent.ToolCalls, "tool call"),
		tokens(spent.Input, spent.CacheRead, spent.CacheWrite, spent.Output)+price(spent.Cost, spent.Currency))
}

// said writes the body of a row for people where it is a step of an agent, else as it is.
func said(event exchange.Event) string {
	text := ""
	switch event.Kind {
	case exchange.EventModelCalled:
		text = read(event, modelStep)
	case exchange.EventToolCalled:
		text = read(event, toolStep)
	case exchange.EventRunWaits:
		text = read(event, waitStep)
	case exchange.EventCompacted:
		text = read(event, compactionStep)
	}
	if text == "" {
		return string(event.Body)
	}
	return text
}

func read[T any](event exchange.Event, write func(*T) string) string {
	var step T
	if json.Unmarshal(event.Body, &step) != nil {
		return ""
	}
	return write(&step)
}

func modelStep(step *exchange.ModelStep) string {
	words := []string{fmt.Sprintf("call %d of %s", step.Number, step.Model)}
	if step.Purpose != "" {
		words[0] += " (" + step.Purpose + ")"
	}
	words = append(words, lasted(step.Millis), tokens(step.Input, step.CacheRead, step.CacheWrite, step.Output)+price(step.Cost, step.Currency))
	if step.Stop != "" {
		words = append(words, "stop "+step.Stop)
	}
	if step.Error != "" {
		words = append(words, "failed: "+step.Error)
	}
	return strings.Join(words, ", ")
}

func toolStep(step *exchange.ToolStep) string {
	words := []string{step.Name + " " + step.Status, lasted(step.Millis)}
	if step.Arguments.Count > 0 {
		words = append(words, counted(step.Arguments.Count, "argument")+" ("+strings.Join(step.Arguments.Keys, ", ")+")")
	}
	if step.Result != nil {
		words = append(words, "result "+shape(step.Result))
	}
	if step.ErrorType != "" {
		words = append(words, step.ErrorType)
	}
	return strings.Join(words, ", ") + "  " + step.CallID
}

func shape(result *exchange.ToolShape) string {
	switch result.Type {
	case "string":
		return counted(result.Size, "byte")
	case "object", "array":
		return fmt.Sprintf("%s of %d", result.Type, result.Count)
	}
	return result.Type
}

func waitStep(step *exchange.WaitStep) string {
	text := step.For + " for " + step.Tool
	if step.Calls > 1 {
		text += fmt.Sprintf(", %d calls", step.Calls)
	}
	return text + "  " + step.CallID
}

func compactionStep(step *exchange.CompactionStep) string {
	text := fmt.Sprintf("%s %s: %s, %d kept, %d → %d bytes", step.Of, step.Status, counted(step.Messages, "message"), step.Kept, step.Before, step.After)
	if step.ArchiveID != "" {
		text += ", " + step.ArchiveID
	}
	if step.Error != "" {
		text += ", " + step.Error
	}
	return text
}

func tokens(input, cacheRead, cacheWrite, output int64) string {
	text := fmt.Sprintf("%d tokens in", input)
	if cacheRead > 0 {
		text += fmt.Sprintf(" (%d cached)", cacheRead)
	}
	if cacheWrite > 0 {
		text += fmt.Sprintf(" (%d to the cache)", cacheWrite)
	}
	return text + fmt.Sprintf(", %d out", output)
}

func price(cost float64, currency string) string {
	if cost <= 0 {
		return ""
	}
	return strings.TrimRight(", "+strconv.FormatFloat(cost, 'f', -1, 64)+" "+currency, " ")
}

func lasted(millis int64) string { return (time.Duration(millis) * time.Millisecond).String() }

func counted(count int, what string) string {
	if count == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", count, what)
}
