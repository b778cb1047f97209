package gorgonia_test

import _ "gorgonia.org/gorgonia/sthenohook"
