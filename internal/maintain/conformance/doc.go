// Package conformance runs Gorgonia's own tests and examples and the ONNX operator tests of onnx-go on Gorgonia's tape machine and on
// Stheno in its place, compares the values of all nodes, and records the findings for docs/conformance.md. All of it is a test,
// TestConformance, which make conformance runs; CONTRIBUTING.md explains its flags.
package conformance
