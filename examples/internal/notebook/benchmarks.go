package notebook

import (
	"fmt"
	"slices"
	"strings"

	recorded "github.com/stheno-ml/stheno/bench/results"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/kernels"
)

// Case names a case of the benchmarks, such as MatMul, 4096, f32. The zero Case is none.
type Case struct {
	Op, Name, Dtype string
	By              string // how the name of another library's routine begins; "" for Stheno
}

// OpCase names a case of the benchmarks, which are of the op alone, version 0.
func OpCase(version int, op, name string, dt kernels.Dtype) Case {
	if version != 0 {
		return Case{}
	}
	return Case{Op: op, Name: name, Dtype: dt.String()}
}

// published is the time of a case in bench/results.
type published struct {
	Case
	us   float64
	date string
}

// String prints the case as docs/speed.md does, and its time. A test reads it from the pages.
func (b published) String() string {
	by := ""
	if b.By != "" {
		by = " by " + b.By
	}
	return fmt.Sprintf("`%s` %s %s%s %s (%s)", b.Op, b.Name, strings.Replace(b.Dtype, "f", "float", 1), by, strings.Replace(records.Micros(b.us), "us", "µs", 1), b.date)
}

// Benchmark returns the time in us of a case of the benchmarks, under a key as [Page.Measure] does.
// docs/speed.md or docs/graphs.md has a time of it, too, and the page must not have another one. So
// without a GPU, and with -record, it is theirs, from bench/results, and the page says so at its
// end. On a GPU without -record, and where bench/results does not have the case, f measures it.
func (p *Page) Benchmark(key string, c Case, f func() float64) Measured {
	device := p.recorded.Device
	if p.gpu != nil {
		device = p.gpu.Name
	}
	if p.gpu != nil && p.options.Record == "" {
		return p.Measure(key, "us", f)
	}
	b, ok, err := find(device, c)
	Check(err)
	if !ok {
		p.unmeasured[key] = c
		return p.Measure(key, "us", f)
	}
	p.take(key)
	if p.gpu == nil {
		p.note()
	}
	p.benchmarks[key] = b
	return Measured{round(b.us), "us"}
}

// find returns the time of a case on a device; ok is false if there is none.
func find(device string, c Case) (b published, ok bool, err error) {
	key := records.Key{Op: c.Op, Case: c.Name, Dtype: c.Dtype}
	for _, set := range []string{records.Ops, records.Graphs} {
		files, err := records.ReadSet(recorded.Files, set)
		if err != nil {
			return b, false, err
		}
		for _, f := range files {
			for _, r := range f.Records {
				own := c.By == "" && r.Kind == records.Time && r.Complete()
				if f.GPU == device && r.Key == key && (own || c.By != "" && r.Kind == records.Peer && strings.HasPrefix(r.By, c.By)) {
					b, ok = published{c, r.Us, f.RunOf(r).Date}, true
				}
			}
		}
		if ok {
			break
		}
	}
	return b, ok, nil
}

// credit lists, at the end of a page, the times that are from bench/results.
func (p *Page) credit() {
	if len(p.benchmarks) == 0 {
		return
	}
	var list []string
	for _, b := range p.benchmarks {
		if text := b.String(); !slices.Contains(list, text) { // a page may show a time twice
			list = append(list, text)
		}
	}
	slices.Sort(list)
	p.remark("These times are medians of the benchmarks' runs, of random numbers, as in docs/speed.md and docs/graphs.md: " + strings.Join(list, ", ") + ".")
}
