// Package coverage finds out how Stheno's compiler handles each of Gorgonia's functions, forward
// and backward, for the table of docs/gorgonia-ops.md. All of it is a test, which writes the table with -update.
package coverage
