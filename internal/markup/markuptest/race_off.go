//go:build !race

package markuptest

// Slowdown is how many times slower the instrumented program is.
const Slowdown = 1
