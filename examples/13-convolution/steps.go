package main

import (
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
)

// A step is a version: what is said before its source, the functions that are shown, and what is said after its time.
type step struct {
	before    string
	example   func(p *notebook.Page)
	file      string
	functions []string
	after     string
}

var steps = []step{
	{before: `The definition: a thread computes an output. Threads of a warp have neighbouring pixels, so that their reads of the image are of few lines, and all read the same filter.`,
		file: "versions/conv.cu", functions: []string{"conv_direct_f32"},
		after: `Two loads for each multiply-add. Most hit the caches, which is why it is not slower still, but load units and index arithmetic are the limit, not the arithmetic units.`},
	{before: `A product of matrices uses an element that it has loaded many times. And a convolution is one: write the window of each pixel, 3 x 3 elements of each channel, as a row of a matrix, and each filter as
		another row. Outputs are the products of rows with rows. This is im2col; Gorgonia's Conv2d is made so.`, example: matrix,
		after: `The product runs at its own speed, on an H100 and an H200 on the tensor cores already: it is the product of the last step of 02-window-and-matmul. But the matrix has nine times as many elements as the
		images, is written once and read once or more, and takes memory. The fewer channels, the more of the time that is. The product's result has its channels last, and a third kernel transposes it.`},
	{before: `The matrix need not exist. The kernel of a product copies pieces of its operands into shared memory, and where an element comes from is its own affair: here it is computed, from pixel, channel and place in the
		window, where the piece is loaded (implicit GEMM).`, file: "conv.cu", functions: []string{"tiles"},
		after: `Nothing is in memory but operands and result, for any stride, padding and dilation, and the gradients are the same kernel with other addresses. But the multiply-adds are those of float32 units, not of tensor
		cores, and addresses cost instructions: a division by a constant and comparisons for each element. So this step is slower where the product of the step before is on tensor cores. It is the one for devices without
		them, and for few channels.`},
	{before: `On compute capability 9.0 the copy engine can compute the addresses. In its im2col mode, TMA copies a tile of so many pixels and channels of one element of the window with one instruction, steps over the ends of rows
		and images by itself, and writes zeros for what is outside. It wants the channels of a pixel side by side: a kernel before the other one transposes the operands. Since it writes them anyway, it writes each number as the
		sum of three in BF16, and wgmma multiplies those, six products for one, as in the last step of 02-window-and-matmul. The sums are as accurate as float32's.`,
		file: "conv_hopper.cu", functions: []string{"Windows"},
		after: `Copies of the operands are 1.5 times their size, not nine times, and each window is read from the L2 cache, not from memory.`},
	{before: `What is left is the precision and the copying. Networks train in BF16, and between the layers of a network nobody wants channels first. If images and outputs are stored in BF16 with their channels last, TMA reads
		images as they are and only the filters are prepared.`,
		after: `One product in the place of six, half the bytes, and nothing is transposed.`},
}

// windows returns the windows of 3 x 3 of an image of one channel as rows of a matrix, 0 outside of the image.
func windows(image [][]float32) (rows [][]float32) {
	for y := range image {
		for x := range image[y] {
			var row []float32
			for i := y - 1; i <= y+1; i++ {
				for j := x - 1; j <= x+1; j++ {
					if i < 0 || i >= len(image) || j < 0 || j >= len(image[i]) {
						row = append(row, 0)
					} else {
						row = append(row, image[i][j])
					}
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// matrix shows the windows of a small image.
func matrix(p *notebook.Page) {
	p.GoFunction("steps.go", "windows")
	image := [][]float32{{1, 2, 3}, {4, 5, 6}}
	t := figure.Table{Caption: "The windows of an image of two rows, 1 2 3 and 4 5 6", Header: []string{"pixel"}}
	for i := range 9 {
		t.Header = append(t.Header, string(rune('a'+i)))
	}
	for i, row := range windows(image) {
		cells := []any{image[i/3][i%3]}
		for _, v := range row {
			cells = append(cells, v)
		}
		t.Add(cells...)
	}
	p.Table(t)
}
