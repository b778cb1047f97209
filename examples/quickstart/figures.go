package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/internal/figure"
)

// history holds the training curve, one entry an epoch.
type history struct {
	train, held, accuracy []float64
}

// draw writes loss.png and digits.png to a folder, and their paths to w.
func draw(w io.Writer, out string, h history, d digits.Set, predicted []prediction) error {
	loss, answers := filepath.Join(out, "loss.png"), filepath.Join(out, "digits.png")
	if err := errors.Join(figure.Save(loss, drawLoss(h)...), figure.Save(answers, drawDigits(d, predicted)...)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "wrote %s\nwrote %s\n", loss, answers)
	return err
}

// drawLoss draws the loss and the held-out accuracy by epoch.
func drawLoss(h history) []figure.Panel {
	percent := make([]float64, len(h.accuracy))
	for i, v := range h.accuracy {
		percent[i] = 100 * v
	}
	return []figure.Panel{
		figure.Chart{Title: "Loss by epoch", XLabel: "epoch", YLabel: "loss", Log: true, Series: []figure.Series{
			{Name: "training", Colour: figure.Blue, Y: h.train},
			{Name: "held out", Colour: figure.Amber, Y: h.held},
		}},
		figure.Chart{Title: "Held-out accuracy by epoch", XLabel: "epoch", YLabel: "accuracy, %", Series: []figure.Series{
			{Name: fmt.Sprintf("%.1f %% at the end", percent[len(percent)-1]), Colour: figure.Amber, Y: percent},
		}},
	}
}

// drawDigits draws held-out images with the network's answers, and the images that it got wrong.
func drawDigits(d digits.Set, predicted []prediction) []figure.Panel {
	const columns = 10
	some := figure.Pictures{Title: "Held-out digits, the network's answer and its probability", Zoom: 8, Columns: columns}
	wrong, mistakes := figure.Pictures{Zoom: 8, Columns: columns}, 0
	for i, p := range predicted {
		image := figure.Image{Width: digits.Side, Values: d.Image(i), Text: fmt.Sprintf("%d   %.0f %%", p.digit, 100*p.probability)}
		if p.digit != d.Labels[i] {
			image.Text, image.Wrong = fmt.Sprintf("%d, is a %d", p.digit, d.Labels[i]), true
			if mistakes++; mistakes <= columns {
				wrong.Images = append(wrong.Images, image)
			}
		}
		if i < 2*columns {
			some.Images = append(some.Images, image)
		}
	}
	wrong.Title = fmt.Sprintf("Its mistakes: %d of %d", mistakes, d.Len())
	return []figure.Panel{some, wrong}
}
