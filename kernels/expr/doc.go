// Package expr holds element-wise functions as expression graphs: the functions that fused kernels compute for each element.
//
// A [Builder] makes a [Func] from operands, constants and operations, or [Parse] reads one from text. A Func has three readings: [Func.String], the
// Go body ([Interpreter]) and PTX ([Assembler]).
//
// Operations are listed in op.go; a new one has its loop in block.go, its derivative in gradient.go, its instructions in instructions.go or, if it
// takes many, its CUDA body in kernels/codegen/math.cu.
//
// # Semantics
//
// Every operation rounds to its element type. Sums and products are never contracted and nothing is reassociated, so a function computes the same
// bits whether its operations run in one kernel or in many. Beyond IEEE 754:
//
//   - Min and Max of a NaN are NaN, and -0 is less than +0.
//   - Comparisons with a NaN are false, but Ne is true.
//   - Sign returns 0, -0 and NaN as they are, as Gorgonia's tensors do (its scalars
//     return 1 for 0).
//   - Pow follows C99: Pow(1, y) and Pow(x, 0) are 1, also for NaN.
//   - Sigmoid and Softplus are not cut off: they are right in their tails, where
//     Gorgonia's return 0, 1 or x.
//   - Arithmetic on integers wraps; so do Neg and Abs of the least.
//   - Convert from Bool returns 0 or 1, and to Bool whether the element is not 0, as NaN is not. From an integer to a floating-point
//     type it rounds to nearest, and to another integer type it wraps. From a floating-point number to an integer it rounds toward 0; a
//     number beyond the type's range becomes the nearest one that the type has, and NaN becomes 0.
//
// RowSum, RowMax and RowMin take their argument at every element of a row, and are one number for all of it: a function that has them is computed row
// by row, in stages ([Func.Stages]), by kernels.Rows. RowSum is the sum in double precision, rounded to the element type; of no elements it is 0,
// RowMax -Inf and RowMin +Inf. RowSum of integers is an Int64 that wraps; RowMax of no integers is the least of the type, RowMin the greatest.
// [ParseRows] reads them, and [Func.RowGradient] is their derivative.
//
// Functions such as Exp are within 2 units in the last place of the true value on every backend, Sigmoid and Softplus within 4. Backends may differ
// within that; all other operations are exact to the bit everywhere, but for the sign and the payload of NaN. Denormal numbers are kept.
package expr
