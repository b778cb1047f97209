// Package results embeds the recorded times of ops and of whole graphs, for programs that show them.
// Package internal/results reads them.
package results

import "embed"

// Files are the records of ops, and in the folder graphs those of whole graphs: a file for each GPU.
//
//go:embed *.json graphs/*.json
var Files embed.FS
