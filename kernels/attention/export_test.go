package attention

// AllUnseen gives queries without keys a launch of their own, however few they are, until the function that it returns is called.
func AllUnseen() (restore func()) {
	before := minUnseen
	minUnseen = 1
	return func() { minUnseen = before }
}
