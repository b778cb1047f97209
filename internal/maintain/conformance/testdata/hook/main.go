package program

import _ "gorgonia.org/gorgonia/sthenohook"
