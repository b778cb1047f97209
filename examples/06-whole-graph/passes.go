package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
)

// An instr is a line of Explain's output: an instruction, by its columns.
type instr struct{ number, defines, does, notes string }

// listing is Explain's output, by pass.
type listing map[string][]instr

var gap = regexp.MustCompile(`\s{2,}`)

// explain reads the output of a machine's Explain.
func explain(vm *cudaops.VM) (listing, error) {
	var text strings.Builder
	if err := vm.Explain(&text); err != nil {
		return nil, err
	}
	list, pass := listing{}, ""
	for line := range strings.Lines(text.String()) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "== "); ok {
			pass = name
		} else if cells := gap.Split(strings.TrimSpace(line), 4); len(cells) > 2 { // neither the heading nor the outputs
			in := instr{number: cells[0], defines: cells[1], does: cells[2]}
			if len(cells) > 3 {
				in.notes = cells[3]
			}
			list[pass] = append(list[pass], in)
		}
	}
	return list, nil
}

// values returns the numbers of the values that instructions define.
func values(list ...instr) (ids []string) {
	for _, in := range list {
		ids = append(ids, numbers(in.defines)...)
	}
	return ids
}

// operands returns the numbers of the values that an instruction reads.
func (in instr) operands() []string { return numbers(in.does) }

func numbers(text string) (ids []string) {
	for word := range strings.FieldsSeq(text) {
		if strings.HasPrefix(word, "%") {
			ids = append(ids, word)
		}
	}
	return ids
}

// launches reports whether an instruction is one that computes.
func (in instr) launches() bool {
	kind, _, _ := strings.Cut(in.does, " ")
	return slices.Contains([]string{"kernel", "map", "rows", "host"}, kind)
}

// loss returns the instructions from the last product of the forward pass to the first
// of the backward pass: the softmax, the loss, and the gradient by the softmax's input.
func (l listing) loss(pass string) ([]instr, error) {
	list := l[pass]
	softmax := slices.IndexFunc(list, func(in instr) bool { return strings.Contains(in.does, "rowmax(") })
	if softmax < 0 || !slices.ContainsFunc(list[:softmax], isProduct) || !slices.ContainsFunc(list[softmax:], isProduct) {
		return nil, fmt.Errorf("the program after %s has no softmax between two products", pass)
	}
	from := softmax
	for !isProduct(list[from]) {
		from--
	}
	return list[from : softmax+slices.IndexFunc(list[softmax:], isProduct)], nil
}

// where returns the instructions of a list for which a condition holds.
func where(list []instr, holds func(instr) bool) []instr {
	return slices.DeleteFunc(slices.Clone(list), func(in instr) bool { return !holds(in) })
}

// definitions returns the instructions of a list that define any of some values.
func definitions(list []instr, ids []string) []instr {
	return where(list, func(in instr) bool {
		return slices.ContainsFunc(values(in), func(id string) bool { return slices.Contains(ids, id) })
	})
}

// without returns the instructions of one list that define no value of another one.
func without(list, others []instr) []instr {
	return where(list, func(in instr) bool { return len(definitions([]instr{in}, values(others...))) == 0 })
}

// isProduct reports whether an instruction is a product of matrices.
func isProduct(in instr) bool { return strings.HasPrefix(in.does, "kernel product") }

// layOut prints instructions in columns, functions of several parts on several lines.
func layOut(list []instr) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, in := range list {
		row := []string{in.number, in.defines, "", in.notes}
		for _, row[2] = range parts(in.does) {
			fmt.Fprintln(w, strings.Join(row, "\t"))
			row[0], row[1], row[3] = "", "", ""
		}
	}
	w.Flush() // into memory, which takes all
	return trailing.ReplaceAllString(b.String(), "\n")
}

var trailing = regexp.MustCompile(` +\n`)

// parts cuts a long function after its types, after each of its definitions and before
// its operands.
func parts(does string) []string {
	const long, indent = 60, "\n    "
	if utf8.RuneCountInString(does) <= long {
		return []string{does}
	}
	does = strings.Replace(does, ": ", ":"+indent, 1)
	does = strings.Replace(does, " %", indent+"%", 1)
	return strings.Split(strings.ReplaceAll(does, "; ", ";"+indent), "\n")
}

// brief returns instructions without the long ones of their functions.
func brief(list []instr) []instr {
	list = slices.Clone(list)
	for i, in := range list {
		if p := parts(in.does); len(p) > 1 {
			list[i].does = p[0] + " ... " + strings.TrimSpace(p[len(p)-1])
		}
	}
	return list
}

// function prints the function of a step, a definition a line.
func function(op string) string { return strings.Join(parts(op), "\n") }

// compile goes through the passes of the compiler.
func compile(s *story) {
	s.Heading("Pass by pass")
	s.Text(`Stheno's machine compiles the graph when it is made. The graph becomes a program, a list of instructions over numbered values; passes then rewrite the program, one after the
		other, until nothing is left to decide: what is launched, where every value is, what is copied when. ` + "`vm.Explain(os.Stdout)`" + ` prints the program after each pass, and
		` + "`vm.Passes()`" + ` its size. Here are excerpts.`)
	list := notebook.Must(explain(s.vm))
	passes := notebook.Must(s.vm.Passes())
	by := map[string]cudaops.PassReport{}
	for _, p := range passes {
		by[p.Pass] = p
	}
	lowered(s, list, by)
	pruned(s, list, by)
	epilogues(s, list, by)
	fused(s, list, by)
	planned(s, list)
	placed(s, list, by)
	compared(s, passes)
}

func lowered(s *story, list listing, by map[string]cudaops.PassReport) {
	s.Text("`lower`"+` translates the nodes. A product becomes a kernel; an element-wise op becomes a map, with its function; a sum or a maximum becomes rows, a function with reductions along
		an axis. A reshape or a repeated bias becomes an alias: another way to look at a value that is there. Nothing else is left of Gorgonia's many ops, and a softmax
		is taken to pieces: %d instructions, %d of which compute. These are the pieces from the last product of the forward pass to the first of the backward pass, with the loss and its gradient:`,
		by["lower"].Instructions, by["lower"].Steps)
	s.Listing("after lower", layOut(notebook.Must(list.loss("lower"))))
}

func pruned(s *story, list listing, by map[string]cudaops.PassReport) {
	gone := where(without(list["lower"], list["prune"]), instr.launches)
	s.Text("`prune` drops instructions that no result depends on, %d of those that compute: among them the derivative by the images, which Grad makes but nobody asked for, and which is as large a product as any.",
		by["lower"].Steps-by["prune"].Steps)
	s.Listing("gone after prune", layOut(gone))
}

func epilogues(s *story, list listing, by map[string]cudaops.PassReport) {
	before, after := where(list["prune"], isProduct), where(list["epilogue"], isProduct)
	s.Text("`epilogue`"+` makes maps a part of the product that they follow: the product's kernel applies them to each sum before it writes it. %d instructions
		that compute become %d. c is the sum, x0 what is read beside the two matrices:`, by["prune"].Steps, by["epilogue"].Steps)
	s.Listing("after epilogue: products that do more", layOut(without(after, before)))
	s.Text("`relu`" + ` is the rectifier, ` + "`step(x0)`" + ` its derivative by its result x0. The rectifier's input need not be kept for that: a number below zero, times 0, is -0, and zero stays +0.`)
}

func fused(s *story, list listing, by map[string]cudaops.PassReport) {
	s.Text("`fuse`"+` joins maps and rows that work on the same elements or rows, as with the chain above. It is where most is gained: %d instructions that compute become %d. The excerpt from
		before is now this, behind the labels:`, by["epilogue"].Steps, by["fuse"].Steps)
	before := notebook.Must(list.loss("epilogue"))
	part := notebook.Must(list.loss("fuse"))
	softmax := part[slices.IndexFunc(part, func(in instr) bool { return strings.Contains(in.does, "rowmax(") })]
	inputs := without(definitions(list["fuse"], softmax.operands()), part)
	s.Listing("after fuse", layOut(slices.Concat(inputs, part)))
	steps, after := where(before, instr.launches), where(definitions(list["fuse"], values(before[1:]...)), instr.launches)
	s.Text(`One launch, with %d inputs and %d outputs, has taken in the softmax, the cross-entropy and the gradient by the softmax's input, forward and backward pass alike.`,
		len(softmax.operands()), len(values(softmax)))
	s.Text(`The inputs are x0, x1 and so on in the order in which they stand behind the function, and a value that is needed twice is a t. So x0 is the last product, with its bias; a row holds the values of one image, one for each
		digit; ` + "`rowmax` and `rowsum`" + ` go along the row. Subtracting the maximum keeps the exponential from overflowing. t1 is then the logarithm of the softmax, and t2, the labels
		over minus the number of images, the gradient of the loss by it. The last line has the two results: the image's part in the loss and, behind the comma, the gradient by x0. That needs the softmax
		again, which is at hand: it is ` + "`exp(t1)`" + `. The kernel loads a row once, does all of this in registers, and writes both results.`)
	s.Text(`Where %d launches stood between the two products, %d are left. Among them are the mean over all images and the gradient by the bias, which cannot be in the launch of the rows: they need what all
		of its blocks have computed.`, len(steps)-1, len(after))
}

func planned(s *story, list listing) {
	copies := without(list["layout"], list["fuse"])
	text := "Here that is none: the products read transposed matrices as they lie, and generated kernels read anything."
	if len(copies) > 0 {
		text = fmt.Sprintf("Here they are %d.", len(copies))
	}
	s.Text("`layout` adds copies of operands that a kernel cannot read as they lie in memory. %s `plan` then chooses the kernels for this device, with grids and blocks. Products have kernels that were compiled beforehand; maps and rows get theirs from their functions.", text)
	s.Listing("after plan: the instructions that compute, and their kernels", layOut(brief(where(list["plan"], instr.launches))))
}

func placed(s *story, list listing, by map[string]cudaops.PassReport) {
	s.Text("`transfer`"+` makes the copies between host and device instructions of their own, %d of them: images, labels and parameters go in, the loss and the gradients come out, and nothing in between
		leaves the device. `+"`place`"+` at last gives every value its address in one piece of memory, behind the @, where values that are never needed at the same time share a place:`, by["transfer"].Copies)
	s.Listing("after place", layOut(brief(notebook.Must(list.loss("place")))))
}

// compared shows the passes side by side.
func compared(s *story, passes []cudaops.PassReport) {
	t := figure.Table{Caption: "The program after each pass. Traffic is the least that the launches read and write; values are all those on the device, each in memory of its own.",
		Header: []string{"pass", "instructions", "that compute", "copies", "traffic", "values"}}
	steps := figure.Bars{Title: "Instructions that compute", Label: "after the pass", Series: []figure.BarSeries{{Colour: figure.Blue}}}
	traffic := figure.Bars{Title: "Memory traffic of a run", Label: "MiB, after the pass", Series: []figure.BarSeries{{Colour: figure.Amber}}}
	for _, p := range passes {
		t.Add(p.Pass, p.Instructions, p.Steps, p.Copies, size(p.Traffic), size(p.Values))
		steps.Add(p.Pass, float64(p.Steps))
		traffic.Add(p.Pass, float64(p.Traffic)/(1<<20))
	}
	s.Table(t)
	s.Figure("passes", "The instructions that compute, and the bytes that they move, after each pass.", steps, traffic)
	first, last := passes[0], passes[len(passes)-1]
	s.Text(`Of %d instructions that compute, %d are left. The traffic falls less than their number, from %s to %s: most of it is the matrices of the products,
		which are read and written as before.`, first.Steps, last.Steps, size(first.Traffic), size(last.Traffic))
}
