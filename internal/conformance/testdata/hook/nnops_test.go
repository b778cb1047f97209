package nnops_test

import _ "gorgonia.org/gorgonia/sthenohook"
