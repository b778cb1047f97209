package expr

// Stored returns the function of operands and with outputs that are stored in these types, each converted when it is read or written: Float32
// may be stored as BF16 or F16. A function that is one of its operands keeps its bits if both types are the same.
func (f Func) Stored(operands, outputs []Dtype) (Func, error) {
	b, types := NewBuilder(operands...), f.Operands()
	if k, is := f.IsOperand(); is && operands[k] == outputs[0] {
		return b.Func(b.Operand(k))
	}
	values := make([]Value, len(operands))
	for i := range operands {
		values[i] = b.Convert(b.Operand(i), types[i])
	}
	results := b.Inline(f, values...)
	for k, r := range results {
		results[k] = b.Convert(r, outputs[k])
	}
	return b.Func(results...)
}
