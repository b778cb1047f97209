package gorgonnx_test

import _ "gorgonia.org/gorgonia/sthenohook"
