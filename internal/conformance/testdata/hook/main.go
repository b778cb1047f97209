package main

import _ "gorgonia.org/gorgonia/sthenohook"
