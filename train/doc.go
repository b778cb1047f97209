// Package train is a training loop: it feeds batches to a VM that makes the steps of a solver. It provides data sets,
// prefetching, schedules, evaluation, callbacks, progress and checkpoints.
//
//	data, err := train.NewData(train.Columns{x: images, y: labels})
//	...
//	vm, err := stheno.NewVM(g, cudaops.Train(solver, learnables...))
//	...
//	history, err := train.Run(ctx, vm, loss, data.Shuffle(1), train.Epochs(30), train.Progress(os.Stderr))
//
// Another goroutine makes the next batch while a step runs. A [Source] makes batches: [Data] holds a data set on the
// host, [DeviceData] on the device, and [Seq] wraps an iterator.
//
// # The last batch
//
// A graph has fixed shapes, but the last batch of an epoch may have fewer rows than the inputs. With [Weights] such a short
// batch is padded with copies of its rows, and the graph has an input for the weights of the rows. Copies have weight 0, so
// a weighted sum of losses is the mean over the batch's own rows. Without [Weights] short batches are left out, which
// is fair if every epoch has another order.
//
// # Evaluation
//
// [Evaluate] computes metrics, such as [Accuracy], of a data set by a VM of the same Store as the training's. [Validate] does so after each epoch, for
// [EarlyStop] and [KeepBest].
//
// # Continuing a training
//
// A [Position] records the progress of a training. A training that starts [From] the position of another, with its
// parameters and solver state, makes the same steps: the order of a data set depends only on the seed and the number of the
// epoch. [Checkpoint] does all of this with a file.
package train
