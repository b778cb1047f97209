//go:build cuda

package tape

// A build without the toolkit or the headers fails with an error that names them.
import _ "github.com/stheno-ml/stheno/cudaops/compat"
