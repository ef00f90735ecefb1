"""Files of many texts: reading them row by row, and writing what was computed, so that both can go on later."""
