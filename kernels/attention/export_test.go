package attention

// AllUnseen gives queries without keys a launch of their own, however few they are, until the function that it returns is called.
func AllUnseen() (restore func()) {
	before := minUnseen
	minUnseen = 1
	return func() { minUnseen = before }
}

// PadGain sets how many times as fast padded rows must be by prediction, 0 for rows that are padded wherever they can be, until the function that it returns is called.
func PadGain(gain float64) (restore func()) {
	before := minPadGain
	minPadGain = gain
	return func() { minPadGain = before }
}
