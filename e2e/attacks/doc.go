// Package attacks holds what one stranger can try against a running server: the built binary with the limits of production, in a
// network of its own where addresses on the public Internet are those of the test. Honest peers write on three channels all the
// time; each attack is judged by what they see meanwhile and by what it costs the server. There is no code to import here.
package attacks
