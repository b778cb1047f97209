package gemm

import (
	"math"
	"math/bits"

	"github.com/stheno-ml/stheno/kernels"
)

// splitPolicy tunes how sums of k terms are cut into splits where there are too few blocks
// for the device.
type splitPolicy struct {
	blocks  int64 // wanted for each multiprocessor
	terms   int64 // least of a split: shorter ones cost more in partial sums than they win
	least   int64 // splits; fewer don't pay
	enough  int64 // blocks for each multiprocessor that are not cut, if not 0
	join    int64 // terms of a split up to which a cluster makes fewer splits than are wanted: a second launch costs more
	nearest bool  // the nearest number of splits to that, in place of the next lower one
	unit    int64 // splits have multiples of so many terms, 64 if 0
	full    int64 // terms from which blocks that leave a quarter of the device idle are cut in more splits, if not 0
}

// splits returns how many splits are wanted for a number of blocks, each with sums of k terms.
func (s splitPolicy) splits(dev kernels.Device, blocks, k int64) int64 {
	sms := int64(dev.SMs)
	if dev.Major == 0 || s.blocks == 0 || s.enough > 0 && blocks >= s.enough*sms {
		return 1
	}
	wanted := sms * s.blocks
	if s.full > 0 && k >= s.full && wanted/blocks*blocks*4 < wanted*3 {
		wanted *= 2
	}
	n := wanted / blocks
	if s.nearest {
		n = (wanted + blocks/2) / blocks
	}
	if n = min(n, k/s.terms); n >= max(s.least, 2) {
		return n
	}
	return 1
}

// joined returns how many splits the blocks of clusters of that size add up among
// themselves, a power of 2: 1 if a second launch adds them up, or there are none.
func (s splitPolicy) joined(dev kernels.Device, blocks, k, cluster int64) int64 {
	n := s.splits(dev, blocks, k)
	if n > cluster && cluster > 0 && kernels.CeilDiv(k, cluster) <= s.join {
		n = cluster
	}
	if n == 1 || n > cluster || k > mostTerms || !dev.HasClusters() {
		return 1
	}
	if up := int64(1) << bits.Len64(uint64(n-1)); up == n || k/up >= s.terms {
		return up
	}
	if down := int64(1) << (bits.Len64(uint64(n)) - 1); down >= s.least {
		return down
	}
	return 1
}

// matmulPolicy tunes products that are not run on the tensor cores. The sizes of tiles
// are compiled into matmul.cu.
type matmulPolicy struct {
	small         int64 // products with fewer multiply-adds for each multiprocessor have small tiles
	short         int64 // sums of up to this many terms are short
	many          int64 // tiles for each multiprocessor that are as good as short sums
	splits        matmulSplits
	rows, columns splitPolicy // of a matrix, times a vector
	flat          splitPolicy // of a matrix of few columns
	halved        int64       // blocks of columns for each multiprocessor below which splits are half as long
	scarce        splitPolicy // of a matrix with few strips of columns and terms of a middling number, in place of columns
	strips        int64       // strips, in all, that are few
	terms         [2]int64    // those numbers, from and to
	few           int64       // columns that are few
	shortRows     [2]int64    // terms up to which a row takes a group of lanes, by type
	copies        int64       // splits from which warps add them up in turn
	joined        int64       // elements of C up to which they do
	wide          int64       // elements of C for each multiprocessor from which products of few terms have kernels of their own
	tiny          int64       // multiply-adds for each small tile up to which matrices of a batch are tiny
	outer, tall   int64       // terms up to which a long and a narrow C have a kernel of their own
	bundle        int64       // terms up to which matrices of a batch in float32 share blocks, if their operands fit in shared memory
	plenty        int64       // elements of a long C for each multiprocessor from which that is so for more than very few terms
	strip         splitPolicy // of a C of few rows or columns
	deep          int64       // terms of such a split from which there are twice as many as blocks have place for
	narrow        int64       // terms from which a narrow C has kernels that read rows in pieces
}

// matmulSplits is how sums are cut, by form.
type matmulSplits struct{ large, medium, short, small, thin splitPolicy }

var matmulPolicies = kernels.Measured[matmulPolicy]{
	// H200, float32, us, and cuBLAS SGEMM. small: 512 x 128 x 512 (m x k x n) 5.3, medium 5.7, cuBLAS 4.9; 400: 9.7, 10.4, 10.4; 512 x 256 x 512: 8.5, 7.7, 7.4;
	// 1024 x 256 x 256: 9.6, 8.1, 8.1; 512: 17, 12.5, 12.9. many: 851 x 109 x 2189, 490 tiles, short 19.3, medium 20.8.
	// short: 10000 x 10 x 10000 142, large 143 to 202, medium 270, cuBLAS 178; 2048 x (128 x 32 x 64) 50, medium 73, 57.
	// thin: 10000 x 784 x 10 19.6, small 29, cuBLAS 23. Splits of small: 256, 8 of 32 terms 5.0, 4 5.4, none 8.2; 129, 8 3.7, 4 3.9, none 5.8;
	// 512 x 128 x 512, 2 6.3, none 5.3; of thin: 128 x 512 x 10, 8 3.5, 4 3.9, none 6.6; 512 x 128 x 10, 2 3.4, none 3.1;
	// 512 x 4096 x 10, 16 8.1, 8 9.7. join: small, 64 x 256 x 256, 8 in a cluster 3.8, 16 by two launches 5.0; 64 x 784 x 512, 7.1, 7.1; thin, 100 x 625 x 10, 3.8, 5.0.
	// terms: small, 411 x 84 x 197, 8 of 11 5.0, 4 4.5. full: medium, 960 x 2582 x 145, 45 tiles, 5 38.8,
	// 2 46.0; 756 x 398 x 432, 84 tiles, 3 16.7, none 15.2. Of large, rows and columns: not measured alone.
	// bundle: 27057 x (9 x 11 x 39), B^T, 40.0, an element a thread 98.8; 218 x (401 x 7 x 195), A^T B^T, 36.2, tiles 61.2; 381 x (194 x 10 x 355), B^T, 57.3, tiles 91.5; a long C, not B^T,
	// 444 x (60 x 14 x 377) 34.7, by outer 30.1; B^T, 166 x (424 x 4 x 208) 32.9, by outer 27.7; 580 x (40 x 3 x 488) 17.7, 31.3. More than 14 terms: not timed.
	// deep: in as many splits as blocks have place for, and twice as many: 13 x 30000 x 3000 138, 147; 3 x 5000 x 40000 189, 225; 1647 x 80029 x 8 221, 183.
	// narrow: 1000000 x 40 x 12 91, tall 107, in float64 128, 178; 100000 x 64 x 5 15.5, 22.0.
	// halved: us, with and without, a matrix transposed times a vector: in float64 453 x 2106 14.4, 18.3; 2113 x 2981 19.8, 22.4; in float32 15.6, 20.0; 17.6, 22.0; but 3000 x 8000 32.8, 28.6.
	// scarce: the same matrices, before and with it, in float64 453 x 2106 13.9, 10.2; 2106 x 453 12.1, 9.5; in float32 15.0, 13.0; 14.1, 9.7; 2113 x 2981 17.0, 13.4. strips: in float64 2113 x 2981 19.7, 20.6 (24 strips); in float32 3000 x 8000 28.6, 31.8 (32).
	// terms: in float32 109 x 3162 10.3, 13.5; 49724 x 296 22.5, 25.9
	// joined: in float64 140 x 9000 x 140 25.4, by warps 28.5; 300 x 20000 x 150 64, 72; in float32 5003 x 5001 x 11 in 12 copies 51, in 20 by warps 70.
	{90, matmulPolicy{
		small: 500_000,
		short: 64,
		many:  3,
		splits: matmulSplits{
			large:  splitPolicy{blocks: 2, terms: 128},
			medium: splitPolicy{blocks: 1, terms: 128, full: 1024},
			small:  splitPolicy{blocks: 4, terms: 16, least: 3, join: 128},
			thin:   splitPolicy{blocks: 2, terms: 64, least: 4, join: 128},
		},
		rows:      splitPolicy{blocks: 16, terms: 1024, enough: 8},
		columns:   splitPolicy{blocks: 32, terms: 128, enough: 16},
		flat:      splitPolicy{blocks: 4, terms: 128, enough: 1},
		halved:    4,
		scarce:    splitPolicy{blocks: 16, terms: 32, unit: 16},
		strips:    20,
		terms:     [2]int64{256, 4096},
		few:       64,
		shortRows: [2]int64{kernels.Float32: 32, kernels.Float64: 32},
		copies:    16,
		joined:    1 << 14,
		wide:      64,
		tiny:      2800,
		outer:     16,
		tall:      64,
		bundle:    14,
		plenty:    4096,
		strip:     splitPolicy{terms: 64, nearest: true},
		deep:      1024,
		narrow:    40,
	}},
}

// form returns the form of the tiled kernel for a product, and how it splits k.
func (p matmulPolicy) form(dev kernels.Device, dt kernels.Dtype, x product) (matmulForm, splitPolicy) {
	small, short, thin := matmulSmall[dt], matmulShort[dt], matmulThin[dt]
	side, tiles, sms := min(x.m, x.n), short.count(x.batch, x.m, x.n), int64(dev.SMs)
	switch {
	case dev.Major == 0:
		return small, p.splits.small
	case x.k <= p.short && side > small.n && tiles >= sms:
		return short, p.splits.short
	case side <= thin.n && x.k > p.short:
		return thin, p.splits.thin
	case side <= small.n || float64(x.batch)*float64(x.m)*float64(x.n)*float64(x.k) < float64(p.small*sms):
		return small, p.splits.small
	case dt == kernels.Float32 && side > matmulLarge.m/2 && matmulLarge.count(x.batch, x.m, x.n) >= sms && int64(dev.SharedOptin) >= matmulLarge.shared(dt, true):
		return matmulLarge, p.splits.large
	case tiles >= p.many*sms || int64(dev.SharedOptin) < matmulMedium[dt].shared(dt, true):
		return short, p.splits.short
	}
	return matmulMedium[dt], p.splits.medium
}

// hopperPolicy tunes float32 products of planes on the tensor cores.
type hopperPolicy struct {
	chosen   bool    // whether plans use the kernel
	products float64 // least batch * m * n * k for each multiprocessor
	tiled    float64 // likewise of products with a tile for six multiprocessors or more, if not 0
	terms    int64   // least k
	few      int64   // likewise of a single product with 12 tiles or more for each multiprocessor, if not 0
	least    int64   // terms of a split of k by mma.sync
	pairs    int64   // least tiles for each multiprocessor from which blocks work in pairs
	split    int64   // most blocks for each multiprocessor of the kernel that writes the planes
	step     float64 // us of a step of a tile
	round    float64 // and of each tile that a block computes after the first
	second   float64 // of a launch that adds copies up
	copied   float64 // and of each megabyte of them
	even     float64 // where each tile has the same number of shares
	part     float64 // and of each share but one
	uneven   float64 // where each block has the same number of steps
}

var hopperPolicies = kernels.Measured[hopperPolicy]{
	// Not timed on an A100. The limits are those that 90 had: there the same kernel takes, us, and tiles of FMA: 1024 62, 68; 2048 335, 437; 8192 19215, 26757; 4096 x 784 x 512 83, 93.
	// An A100 has 16 times FMA's rate in BF16, an H200 15 times.
	{80, hopperPolicy{chosen: true, products: 3 << 20, terms: 64, least: 128, split: 4}},
	// Not timed. By their data sheets these have 2 (8.6), 2 to 4 (8.9), 2 (12.0) times FMA's rate in BF16, and six products are to be made; mma.sync's rate of 10.0 is not published.
	{86, hopperPolicy{split: 4, least: 128}},
	{89, hopperPolicy{split: 4, least: 128}},
	// H200, us with planes and combining, tiles of FMA, and cuBLAS SGEMM: 768: 31, -, 34; 784: -, 41, 35; 1024: 44, 64, 56 to 68; 2048: 200, 414, 340; 4096 x 784 x 512: 53, 88, 72;
	// 1024 x 512 x 512: 23, 19, 19. Planes of 4096 x 784 and 784 x 512 and their ranges by 3, 4, 6, 8 blocks a
	// multiprocessor: 15.4, 15.3, 16.0, 15.3; of 4096: 96, 96, 97, 93
	// Cuts, fitted by hand to 190 times of 38 shapes; whole tiles, the best copies, even shares, uneven shares: 1536 118, 106, -, 83; 1600 124, 115, -, 97; 1920 158, 185, -, 152; 2048 169, 204, -, 178; 2560 399, 415, -, 330;
	// 784 37.1, 29.3, 28.9, 30.2; 768 35.0, 23.9, 25.1, 27.5; 1024 45.1, 35.9, 35.0, 36.7; 1152 51.2, -, -, 46.4; 784 x 10000 x 784, whose planes are larger than level 2, 327, 195, 195, 225.
	// pairs: 4096 1281 to 1289, single blocks 1275. tiled: 600 20.3, FMA 30.1; 640 19.0, 30.4; 1024 x 512 x 512 (m x k x n) 19.7, 30.4; 1024 x 256 x 1024 18.7, 18.3;
	// few: 8682 x 55 x 5745, B^T 169, 246; 2000 x 50 x 20000 111, 152; 5000 x 48 x 5001 92, 118; 6000 x 40 x 6000 103, 111; 7000 x 24 x 7000 112, 110
	// below the limits, 512 x 784 x 512 18.8, 16.5; 512 17.0, 12.5; 256 x 4096 x 256, 4 tiles, 34.8, 21.8
	{90, hopperPolicy{chosen: true, products: 3 << 20, tiled: 1_600_000, terms: 64, few: 33, least: 128, pairs: 7, split: 4,
		step: 1.07, round: 1, second: 2.8, copied: 0.33, even: 3.6, part: 1.1, uneven: 10}},
	{100, hopperPolicy{split: 4, least: 128}},
}

// cut returns the cut of a product that takes the least time by a rough model of the measured times.
func (p hopperPolicy) cut(dev kernels.Device, c result, k int64) hopperCut {
	d := hopperCut{cluster: 1, copies: 1}
	if kernels.CeilDiv(c.m, hopperTile)*kernels.CeilDiv(c.n, hopperTile)*c.batch >= p.pairs*int64(dev.SMs) && c.m > hopperTile {
		d.cluster = 2
	}
	tiles, steps, most := kernels.CeilDiv(c.m, d.cluster*hopperTile)*kernels.CeilDiv(c.n, hopperTile)*c.batch, kernels.CeilDiv(k, hopperStep), max(int64(dev.SMs)/d.cluster, 1)
	rounds := kernels.CeilDiv(tiles, most)
	d.blocks = min(tiles, most)
	best, least := d, float64(rounds*steps)*p.step+float64(rounds-1)*p.round
	try := func(blocks, shared, copies, steps int64, more float64) {
		if t := float64(steps)*p.step + more; t < least {
			least, best = t, hopperCut{d.cluster, blocks, shared, copies}
		}
	}
	for n := int64(2); n*tiles <= most && n <= steps; n++ {
		chunk := hopperChunk(k, n)
		try(n*tiles, 0, kernels.CeilDiv(k, chunk), chunk/hopperStep, p.second+p.copied*float64(n*c.count()*c.dt.Size())/1e6)
		try(n*tiles, tiles, 1, kernels.CeilDiv(steps, n), p.even+p.part*float64(n-1))
	}
	// All blocks are at different terms of k, so the planes of few tiles have to be in level 2 as a whole, with room to spare: 768 x 3072 x 768, 28 of 60 MB, took
	// 57 and 67 us in two runs, by copies 58.
	shared := tiles - max(tiles/most-1, 0)*most
	if tiles%most != 0 && tiles*steps >= most && (tiles > most || 6*c.batch*(c.m+c.n)*k <= dev.L2*3/8) {
		try(most, shared, 1, kernels.CeilDiv(shared*steps, most)+(tiles-shared)/most*steps, p.uneven)
	}
	return best
}

// reducedPolicy tunes products of rounded operands.
type reducedPolicy struct {
	chosen   bool    // whether plans use the kernels
	products float64 // least batch * m * n * k for each multiprocessor
	side     int64   // least rows and columns
	terms    int64   // least k
	round    int64   // most blocks for each multiprocessor of the kernels that round operands
	given    int64   // least rows and columns in BF16 where the larger operand is given rounded
	smaller  float64 // time of an element of a smaller tile, that of a larger one 1
	narrow   int64   // most bytes of k terms, of products for which there is a narrow tile for each multiprocessor
	splits   splitPolicy
}

var reducedPolicies = kernels.Measured[reducedPolicy]{
	// Not timed on such devices: 80, 89 and 100 are the same kernels and, where nothing else is said, the limits of 90. On an H200, us, by tiles of 256 and of 128 columns, operands rounded
	// before: BF16 2048 44.3, 47.0; 4096 327, 351; 8192 2499, 2722; 4096 x 784 x 512 21.7, 18.2; TF32 2048 79, 92; 4096 622, 697; 8192 4852, 5351.
	{80, reducedPolicy{chosen: true, products: 1 << 20, side: 65, terms: 64, round: 8, smaller: 1.1, splits: splitPolicy{blocks: 1, terms: 128}}},
	{89, reducedPolicy{chosen: true, products: 1 << 20, side: 65, terms: 64, round: 8, smaller: 1.1, splits: splitPolicy{blocks: 1, terms: 128}}},
	// H200, us, float32, TF32 as operands lie, BF16 with rounding: 512 x 512 x 1024 (m x n x k) 25, 12, 16; 768 31, 14, 17; 1024 45, 19, 22; 4096 x 512 x 512 40, 13, 16; below the
	// limit, 512: 15, 10.5, and BF16 10.4 before 5 for rounding; 128 x 512 x 784 11.1, 10.7, 10.9. Smaller, round and splits were not swept.
	// given: MLP 784-4096-4096-10, batch 4096, BF16, with ten terms in BF16 too 960, without 980; as it is 903 to 933. narrow: m x k x n, operands rounded before, us by narrow tiles, and by splits of tiles of 128 columns: BF16 1000 x 784 x 1000 9.6, 15.9, with a bias and a rectifier
	// 10.3, 20.5; 1000 x 2048 x 1000 15.5, 20.0; 512 x 2048 x 512 12.6, 14.7, A transposed 13.0, 12.3; 300 x 2048 x 600 12.9, 13.2; TF32 1000 x 1024 x 1000 14.7, 19.3; 512 x 1024 x 512 12.5, 15.0; 300 x 1000 x 600 12.5, 14.7.
	{90, reducedPolicy{chosen: true, products: 1 << 20, side: 65, terms: 64, round: 8, given: 10, smaller: 1.2, narrow: 4096, splits: splitPolicy{blocks: 1, terms: 128}}},
	{100, reducedPolicy{chosen: true, products: 1 << 20, side: 65, terms: 64, round: 8, smaller: 1.1, splits: splitPolicy{blocks: 1, terms: 128}}},
}

// form returns the form of a product of k terms that takes the least time, and how its sums are cut. Where a multiprocessor computes one
// narrow tile at most, and k is not long, a second launch would cost more than splits win; else the time is that of a tile for each that a
// multiprocessor computes.
func (p reducedPolicy) form(dev kernels.Device, by kernels.Precision, c result, k int64) (best reducedForm, splits splitPolicy) {
	forms := reducedForms(dev, by)
	if narrow := forms[len(forms)-1]; k*(Rounded{Precision: by}).size() <= p.narrow && narrow.tiles(c.batch, c.m, c.n) <= int64(dev.SMs) {
		return narrow, splitPolicy{}
	}
	least := math.Inf(1)
	for i, f := range forms[:2] {
		time := float64(kernels.CeilDiv(f.tiles(c.batch, c.m, c.n), int64(dev.SMs)) * f.columns)
		if i > 0 {
			time *= p.smaller
		}
		if time < least {
			best, least = f, time
		}
	}
	return best, p.splits
}

// smallPolicy tunes small products whose operands are rounded as they are multiplied. A product takes the parts of k that take the
// least time by a rough model of the measured times.
type smallPolicy struct {
	side        int64   // least rows and columns
	terms, most int64   // least and most k
	least       int64   // least terms of a part
	join        float64 // us that a cluster takes to add parts up
	block       float64 // us of each block of a multiprocessor
	piece       float64 // us of each piece of those
	alone       float64 // us of a piece, at least
}

var smallPolicies = kernels.Measured[smallPolicy]{
	// H200, us, in a chain of one graph. The model is fitted to 75 shapes, half of them drawn: its parts are 3 % slower than the best, tiles of 64 x 32 included. 128 x 512 x 784 (m x n x k) BF16 6.9, float32 9.7;
	// 128 x 512 x 512 5.2, 7.5; 384 6.3, 8.8. terms: TF32, A^T, 784 x 512 x 128 6.4, 6.3; 512 x 512 x 128 5.7, 4.5; 512 x 512 x 256 7.2, 6.7. most: 104 x 64 x 5928 11.0, 9.4; 24 x 72 x 3160 6.5, 5.2; 166 x 315 x 2247
	// 12.3, 16.0. side: 40 x 20 x 2463 6.6, 5.0; 24 x 96 x 664 2.8, 4.0
	{90, smallPolicy{side: 24, terms: 192, most: 2560, least: 16, join: 0.45, block: 0.29, piece: 0.07, alone: 0.32}},
}

// parts returns in how many parts of k clusters compute a product.
func (p smallPolicy) parts(dev kernels.Device, x product) (best int64) {
	least := math.Inf(1)
	for parts := int64(1); parts <= smallJoin && (parts == 1 || parts*p.least <= x.k); parts *= 2 {
		pieces, busy := float64(kernels.CeilDiv(kernels.CeilDiv(x.k, parts), smallTerms)), float64(kernels.CeilDiv(smallTiles(x)*parts, int64(dev.SMs))) // blocks of the busiest multiprocessor
		time := busy*p.block + pieces*max(p.alone, busy*p.piece)
		if parts > 1 {
			time += p.join
		}
		if time < least {
			best, least = parts, time
		}
	}
	return best
}
