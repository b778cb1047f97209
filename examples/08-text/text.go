package main

import (
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/opticks"
)

// text is the text to learn: letters by their numbers, bytes of the file.
type text struct {
	name    string
	letters []byte // by number
	read    []int  // to learn from
	held    []int  // the last twentieth, held out
}

// least is how many letters a text must have.
const least = 50_000

// load reads a text, Newton's Opticks for no path.
func load(path string) (text, error) {
	content, name, err := opticks.Read(path, least)
	return newText(name, content), err
}

// newText numbers the letters of a text and holds out its end.
func newText(name string, content []byte) text {
	t := text{name: name}
	var number [256]int
	for _, c := range content {
		number[c] = 1
	}
	for c, there := range number {
		if there == 1 {
			number[c] = len(t.letters)
			t.letters = append(t.letters, byte(c))
		}
	}
	all := make([]int, len(content))
	for i, c := range content {
		all[i] = number[c]
	}
	n := len(all) - len(all)/20
	t.read, t.held = all[:n], all[n:]
	return t
}

// cut leaves the first letters of the part to read, and the same share of the part held out.
func (t *text) cut(n int) {
	n = min(n, len(t.read))
	t.read, t.held = t.read[:n], t.held[:n/19]
}

// string is the text of numbers.
func (t *text) string(numbers []int) string {
	out := make([]byte, len(numbers))
	for i, n := range numbers {
		out[i] = t.letters[n]
	}
	return strings.ToValidUTF8(string(out), "?")
}

// reading shows the text.
func reading(s *story) {
	s.Heading("The text")
	s.Text(`We read %s: %d letters of %d kinds, for capitals, spaces, commas and ends of lines are letters, too. The last %d are held out, to see how well the network does on text that it has not seen.`, s.text.name, len(s.text.read)+len(s.text.held), len(s.text.letters), len(s.text.held))
	if s.text.name == opticks.Name {
		s.Text("The book is about experiments with light, and ends with questions about all of nature. So its end is not like its middle, and the harder to guess.")
	}
	from := len(s.text.read) / 4
	for s.text.letters[s.text.read[from]] != '\n' && from < len(s.text.read)-1 {
		from++
	}
	s.Listing("a part of it", s.text.string(s.text.read[from:min(from+400, len(s.text.read))]))
	s.Text(`The task is to guess the next letter, and a guess is a probability for each letter. If the letter that comes had probability p, it costs log2(1/p) bits: none if it was certain, 1 bit for a
		half, %s bits if all %d letters were equally likely. The mean over the text is the number of bits that it takes to store a letter of it with these guesses.`, bits(uniform(s)), len(s.text.letters))
}

// bits prints bits a letter.
func bits(v float64) string { return fmt.Sprintf("%.2f", v) }
