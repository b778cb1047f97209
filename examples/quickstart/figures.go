package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
)

// history is what the training curve shows, one entry an epoch.
type history struct {
	train, held, accuracy []float64
}

// draw writes the figures to a folder, and their paths to w.
func draw(w io.Writer, out string, h history, d digits.Set, predicted []prediction) error {
	for _, figure := range []func() (string, error){
		func() (string, error) { return drawLoss(out, h) },
		func() (string, error) { return drawDigits(out, d, predicted) },
	} {
		path, err := figure()
		if err != nil {
			return err
		}
		fmt.Fprintln(w, "wrote", path)
	}
	return nil
}

// drawLoss writes loss.png: the loss and the held-out accuracy by epoch.
func drawLoss(out string, h history) (string, error) {
	epochs := make([]float64, len(h.train))
	percent := make([]float64, len(h.train))
	for i := range epochs {
		epochs[i], percent[i] = float64(i+1), 100*h.accuracy[i]
	}
	c := notebook.NewCanvas(1320, 520)
	notebook.Chart{Title: "Loss by epoch", XLabel: "epoch", Log: true, Series: []notebook.Series{
		{Name: "training", Colour: notebook.Blue, X: epochs, Y: h.train},
		{Name: "held out", Colour: notebook.Amber, X: epochs, Y: h.held},
	}}.Draw(c, 0, 0, 660, 520)
	notebook.Chart{Title: "Held-out accuracy by epoch, %", XLabel: "epoch", Series: []notebook.Series{
		{Name: fmt.Sprintf("%.1f %% at the end", percent[len(percent)-1]), Colour: notebook.Amber, X: epochs, Y: percent},
	}}.Draw(c, 660, 0, 660, 520)
	path := filepath.Join(out, "loss.png")
	return path, c.Save(path)
}

// drawDigits writes digits.png: held-out images with what the network made of
// them, and the images that it got wrong.
func drawDigits(out string, d digits.Set, predicted []prediction) (string, error) {
	const columns, cell, tall, pixel = 10, 128, 150, 12
	var wrong []int
	for i, p := range predicted {
		if p.digit != d.Labels[i] {
			wrong = append(wrong, i)
		}
	}
	c := notebook.NewCanvas(columns*cell+40, 3*tall+160)
	draw := func(x, y, i int) {
		c.Rect(x-1, y-1, digits.Side*pixel+2, digits.Side*pixel+2, notebook.Rule)
		c.Gray(x, y, pixel, digits.Side, d.Image(i))
		p, colour := predicted[i], notebook.Ink
		text := fmt.Sprintf("%d   %.0f %%", p.digit, 100*p.probability)
		if p.digit != d.Labels[i] {
			colour, text = notebook.Red, fmt.Sprintf("%d, is a %d", p.digit, d.Labels[i])
		}
		c.Text(float64(x+digits.Side*pixel/2), float64(y+digits.Side*pixel+24), 14, notebook.Centre, colour, text)
	}
	c.Text(36, 46, 17, notebook.Left, notebook.Ink, "Held-out digits, the network's answer and its probability")
	for i := range min(2*columns, d.Len()) {
		draw(36+i%columns*cell, 74+i/columns*tall, i)
	}
	y := 74 + 2*tall + 30
	c.Text(36, float64(y+4), 17, notebook.Left, notebook.Ink,
		fmt.Sprintf("Its mistakes: %d of %d", len(wrong), d.Len()))
	for k, i := range wrong[:min(columns, len(wrong))] {
		draw(36+k*cell, y+32, i)
	}
	path := filepath.Join(out, "digits.png")
	return path, c.Save(path)
}
