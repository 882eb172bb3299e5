//go:build race

package markuptest

// slowdown is how many times slower the instrumented program is.
const slowdown = 12
