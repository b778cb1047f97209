// Package results embeds the recorded times of ops and of whole graphs, for programs that show them.
// Package internal/maintain/records reads them.
package results

import "embed"

// Files are the records of ops and of whole graphs: in the folder of a set a file for each GPU.
//
//go:embed ops/*.json graphs/*.json
var Files embed.FS
