// Package train is the training loop: it feeds batches to a VM that makes the steps of a solver,
// and does everything around them.
//
//	data, err := train.NewData(train.Columns{x: images, y: labels})
//	...
//	vm, err := stheno.NewVM(g, cudaops.Train(solver, learnables...))
//	...
//	history, err := train.Run(ctx, vm, loss, data.Shuffle(1), train.Epochs(30), train.Progress(os.Stderr))
//
// The next batch is made in another goroutine while the step of the last one runs. A
// [Source] makes batches: [Data] has a data set on the host, [DeviceData] has it on the device,
// and [Seq] takes any iterator.
//
// # The last batch
//
// A graph has fixed shapes, so that a batch with fewer rows than its inputs, such as the
// last one of an epoch, is filled up with copies of its own rows. With [Weights] the graph
// has an input for the weights of the rows: those of the copies are 0, and a loss which is
// the weighted sum is the mean over the rows that are there. Without it such a batch is left
// out, which is fair where the order is another in every epoch.
//
// # Where a training is
//
// A [Position] records how far a training has come. A training that starts [From] the position of
// another, with the parameters and the solver's state of that moment, goes on as the other did: the
// order of a data set follows from the seed and the number of the epoch alone. [Checkpoint] does
// all of that with a file.
package train
