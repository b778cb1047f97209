//go:build cuda

package tape

// A build that lacks the toolkit or the headers says so in plain words.
import _ "github.com/stheno-ml/stheno/cudaops/compat"
