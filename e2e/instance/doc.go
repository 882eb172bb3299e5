// Package instance builds the program and runs it as an operator would: a configuration file, a process, signals and
// the command line. The end-to-end tests and the benchmarks share it. It imports nothing of the server: what it knows
// is what is written in the documentation.
package instance
