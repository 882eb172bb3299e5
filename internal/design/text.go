package design

import "context"

func text(_ context.Context, english string) string { return english }
